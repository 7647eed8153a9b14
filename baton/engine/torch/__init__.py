"""The embedded default: Llama and Qwen checkpoints in plain torch, on CPU and CUDA."""
