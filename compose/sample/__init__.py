"""A service of nobody's, as a model of one: what its links lead to, and when a person has done it."""
