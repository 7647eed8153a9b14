"""How many requests a router places."""
