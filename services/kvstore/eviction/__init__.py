"""What is evicted from a tier to free space: pure, without I/O or a clock except a use count."""
