"""Asks providers what became of a message."""
