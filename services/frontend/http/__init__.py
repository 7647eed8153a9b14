"""The OpenAI HTTP API, served by the same code as gRPC."""
