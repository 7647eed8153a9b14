"""Structured outputs: the allowed next tokens under a grammar, as a function of the output so far.

Based on llguidance. Frontends compile a grammar to reject unsupported ones, and workers compile it
to sample by; neither needs a model, only its tokenizer.
"""
