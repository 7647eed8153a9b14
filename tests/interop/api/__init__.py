"""Clients of OpenAI's API that people have, unmodified, against a cluster."""
