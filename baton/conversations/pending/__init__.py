"""Turns and completions that ended while the database was away: on disk until they are stored."""
