"""Two hundred intents over every outcome on the real stack, and four proofs from the outside."""
