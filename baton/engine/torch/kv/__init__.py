"""Memory of the torch engine's KV: pages per group of layers, and batches laid out in them."""
