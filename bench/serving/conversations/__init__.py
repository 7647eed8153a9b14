"""Stored conversations while frontends, workers and Postgres are killed and frozen."""
