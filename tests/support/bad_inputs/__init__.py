"""Plays what is in tests/data/bad_inputs at a frontend, over both of its surfaces."""
