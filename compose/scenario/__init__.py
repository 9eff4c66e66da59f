"""Scenario files: one intent's story on a virtual clock through the real handlers, in milliseconds."""
