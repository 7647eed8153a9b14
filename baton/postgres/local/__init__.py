"""A real Postgres on this machine, for development and tests."""
