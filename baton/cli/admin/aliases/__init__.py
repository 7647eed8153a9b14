"""`baton aliases`: further names of models."""
