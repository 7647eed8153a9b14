"""Synthetic English: stories, small talk, facts and questions about them, lists."""
