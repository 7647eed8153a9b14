"""Sends the cases of tests/data/bad_inputs to a frontend, over both of its APIs."""
