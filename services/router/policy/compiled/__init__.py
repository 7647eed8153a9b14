"""Placement scores in compiled code: the result of the array operations, in one call."""
