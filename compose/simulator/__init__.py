"""A provider that can go wrong on one seed, over HTTP."""
