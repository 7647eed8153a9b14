"""Outputs that keep to a grammar: which tokens may come next, as a function of the output so far.

Stands on llguidance. Frontends compile a grammar to refuse what cannot be kept, workers compile it
to sample by; neither needs a model, only its tokenizer.
"""
