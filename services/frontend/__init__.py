"""The frontend: what clients speak to. Tokenizes, drives prefill and decode, streams text."""
