"""LoRA adapters in vLLM: read on a thread, and put into slots between steps."""
