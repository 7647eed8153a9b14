"""A local Postgres server, for development and tests."""
