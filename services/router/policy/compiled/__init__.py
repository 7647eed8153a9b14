"""Scores of placements in compiled code: what array operations would say, in one call."""
