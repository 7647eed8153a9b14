"""vLLM as Baton's engine compared with vLLM alone: `python -m bench.vllm`."""
