"""Sums of usage records: one question, answered from Postgres or from files of records alike."""
