"""The OpenAI API: its bodies in, its answers out. Knows no sockets."""
