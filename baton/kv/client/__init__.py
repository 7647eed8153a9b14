"""Client of a host's KV store, with which workers put and get objects."""
