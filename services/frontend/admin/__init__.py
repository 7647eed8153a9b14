"""Administration in OpenAI's own shape: projects, service accounts, keys, limits, audit."""
