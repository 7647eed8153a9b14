"""LoRA in the torch engine: matrices of adapters, added to the outputs of linear maps."""
