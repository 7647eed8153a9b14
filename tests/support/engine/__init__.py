"""Engines and checkpoints for tests."""
