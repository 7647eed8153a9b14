"""How KV objects and their leases are written into messages."""
