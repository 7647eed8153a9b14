"""The default engine, built in: Llama and Qwen checkpoints in plain torch, on CPU and CUDA."""
