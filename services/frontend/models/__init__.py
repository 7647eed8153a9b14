"""The models that can be asked, and their tokenizers: fetched from the workers, and loaded."""
