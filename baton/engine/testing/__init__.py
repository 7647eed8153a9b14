"""Small random checkpoints and tokenizers, for tests and for demos without a model."""
