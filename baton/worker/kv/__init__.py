"""Transfer of KV to and from a worker's engine: fetching, publishing, and idle eviction."""
