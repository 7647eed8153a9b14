"""vLLM as Baton's engine beside vLLM alone: `python -m bench.vllm`."""
