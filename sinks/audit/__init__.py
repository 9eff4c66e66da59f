"""Writes every record of every topic to Postgres, once."""
