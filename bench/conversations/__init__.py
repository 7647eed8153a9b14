"""Stored conversations: what turns cost, and what is left when processes are killed."""
