"""LoRA adapters as PEFT writes them, checked against a model before an engine loads them."""
