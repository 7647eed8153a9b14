"""What a simulated worker is: time, its caches, its waiting line, and what computing costs it."""
