"""Loads of streamed completions: over gRPC, over HTTP, mixed with long prompts."""
