"""Sampling: one exact definition of how a token is drawn from logits, for every engine."""
