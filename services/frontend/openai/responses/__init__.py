"""OpenAI's Responses: input and output are lists of items."""
