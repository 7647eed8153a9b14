"""Families of models: tokens compared with those of vLLM alone, and bytes that are handed over."""
