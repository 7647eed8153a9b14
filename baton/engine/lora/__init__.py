"""LoRA adapters in PEFT's format, checked against a model before an engine loads them."""
