"""The state of one request and its next actions, decided without I/O or a clock."""
