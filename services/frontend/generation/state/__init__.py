"""The state of one request, and what it needs next: decided without I/O or a clock."""
