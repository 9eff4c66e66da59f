"""Released price tables: one folder a table, one file a version. Released files never change."""
