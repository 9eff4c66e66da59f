"""Plain Kafka clients: consumer, producer, admin."""
