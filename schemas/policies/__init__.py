"""Released policies: one folder a purpose, one file a version. Released files never change."""
