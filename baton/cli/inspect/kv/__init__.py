"""`baton kv`: list, read, drop and verify what the KV stores hold."""
