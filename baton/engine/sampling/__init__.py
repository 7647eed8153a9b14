"""Sampling: one exact definition, for all engines, of how a token is sampled from logits."""
