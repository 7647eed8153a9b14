"""Usage and costs over HTTP: OpenAI's usage and costs endpoints, and reports of teams."""
