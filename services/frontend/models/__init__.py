"""Tokenizers of models that workers register: fetched from them, and loaded."""
