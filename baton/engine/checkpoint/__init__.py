"""A checkpoint on disk: its files, the model's shape, recommended sampling, and engine sizing."""
