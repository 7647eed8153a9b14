"""Postgres for tests."""
