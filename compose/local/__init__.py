"""Real Kafka and real Postgres from wheels, in one folder."""
