"""Encodes the responses of the OpenAI API: whole bodies, and chunks of a stream."""
