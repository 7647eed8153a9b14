"""Keeps the state current: discovery, and the streams of each worker and store."""
