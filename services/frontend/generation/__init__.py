"""The life of one request: placed, prefilled, decoded, moved when a worker is lost."""
