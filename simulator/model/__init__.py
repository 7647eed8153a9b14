"""Model of a simulated worker: time, caches, waiting line, and computing costs."""
