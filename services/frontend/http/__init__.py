"""The OpenAI HTTP API, answered from the same code as gRPC."""
