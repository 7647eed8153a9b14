"""Who asks: API keys of requests, on both surfaces alike."""
