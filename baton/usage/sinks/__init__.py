"""Destinations of usage records: each sink accepts batches, and acknowledges them once stored."""
