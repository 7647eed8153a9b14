"""Batches while all that run their lines are killed and frozen."""
