"""`baton adapters`: LoRA adapters, which workers load while they serve."""
