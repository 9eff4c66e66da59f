"""Everything that touches a system other than Kafka."""
