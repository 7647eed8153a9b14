"""What requests used and cost, over HTTP: OpenAI's usage and costs, and reports of teams."""
