"""Real crashes at every durable boundary, reached on purpose; the four proofs must hold afterwards."""
