"""KV in and out of a worker's engine: fetched, published, and evicted when idle."""
