"""A world that breaks everything, on one seed: the real code on a virtual log, clock, database and wire."""
