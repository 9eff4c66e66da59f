"""Faust made exact: batches, one transaction, fast recovery."""
