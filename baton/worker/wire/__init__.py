"""Encoding and decoding of a step's tokens and of a tokenizer's files."""
