"""OpenAI's chat completions, as other operators serve them: requests and streams."""
