"""Shared libraries compiled from this code: what they are made of, where they lie, their builds."""
