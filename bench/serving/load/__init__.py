"""Loads of streamed completions: over gRPC, over HTTP, beside long prompts."""
