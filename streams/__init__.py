"""The stream processing: pure decisions, the exact engine, the worker."""
