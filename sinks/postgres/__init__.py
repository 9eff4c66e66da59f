"""The database: migrations, pool, named queries."""
