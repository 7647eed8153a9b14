"""Responses in the background: without their clients, at another frontend if theirs dies."""
