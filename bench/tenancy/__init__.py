"""Tenancy benchmarks: cost of keys, limits and usage, delay of changes, and information leaks."""
