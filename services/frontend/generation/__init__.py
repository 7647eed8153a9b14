"""The life of one request: placement, prefill, decode, and recovery when a worker is lost."""
