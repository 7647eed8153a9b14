"""What a model needs on GPUs, by arithmetic from its checkpoint and the GPU's data sheet."""
