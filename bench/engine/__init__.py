"""How fast the engine computes, beside the machine's limits and vLLM."""
