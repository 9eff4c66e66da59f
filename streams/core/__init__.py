"""The decisions: pure, no clock, no I/O."""
