"""At most one logical submission per intent and channel."""
