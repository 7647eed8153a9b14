"""KV blocks: what names them, what their bytes mean, and how they travel."""
