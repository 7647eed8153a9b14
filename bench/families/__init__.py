"""The tokens of models of many families, compared with those of vLLM alone."""
