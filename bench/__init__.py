"""Benchmarks: each runs with one command and prints what it measured."""
