"""Placement policies of simulated requests: one file per policy, and their catalog."""
