"""Stored chat completions: a row each, with its messages, its metadata, and what was answered."""
