"""The client of a host's KV store: what workers put and get objects with."""
