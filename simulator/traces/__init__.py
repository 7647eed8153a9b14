"""Recorded requests: read from files, and changed for studies."""
