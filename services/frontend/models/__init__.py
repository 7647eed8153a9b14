"""The available models, and their tokenizers: fetched from the workers, and loaded."""
