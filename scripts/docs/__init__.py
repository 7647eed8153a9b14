"""The pages of docs/ that are written from the code, each by one module."""
