"""Inputs of routers' tests, and a reference implementation of placement."""
