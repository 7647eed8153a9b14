"""The KV store of one host: content-addressed objects in an arena of shared memory."""
