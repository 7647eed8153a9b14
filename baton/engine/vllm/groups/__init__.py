"""vLLM's groups of layers: which kinds there are, and the pages of a sequence in each."""
