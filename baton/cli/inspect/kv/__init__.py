"""`baton kv`: list, read, drop and verify the objects in KV stores."""
