"""Summaries that take the place of a conversation's turns."""
