"""Benchmarks of usage records: duration of queries, and whether each response has one record."""
