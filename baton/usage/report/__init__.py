"""Sums of usage records: one query, answered from Postgres or from files of records."""
