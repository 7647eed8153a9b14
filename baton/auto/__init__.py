"""Which models a request for `auto` may run as: its features, and the rules over them."""
