"""`baton plan`: how many GPUs a model needs, what to expect of them, and the overlay for them."""
