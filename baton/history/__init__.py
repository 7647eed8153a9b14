"""Ended requests kept on disk for explanations: failed, slow, and a sample of the others."""
