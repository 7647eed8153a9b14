"""OpenAI's Files: uploaded as they stream in, listed, read and deleted."""
