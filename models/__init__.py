"""Checkpoints that come with the project, and what made them."""
