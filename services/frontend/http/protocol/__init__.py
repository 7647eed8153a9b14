"""HTTP/1.1 and 1.0 on a connection: requests read within bounds, answers framed."""
