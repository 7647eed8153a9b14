"""Session: many requests of one client on one stream, a message per loop turn for all of them."""
