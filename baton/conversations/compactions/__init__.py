"""Summaries of stored conversations: which frontend writes one, and what it says."""
