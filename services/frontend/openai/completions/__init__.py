"""Chat completions that are stored: kept when they end, and read again."""
