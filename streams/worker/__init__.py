"""The Faust shell: speaks Kafka and nothing else."""
