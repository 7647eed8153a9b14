"""The default engine, built in: Hugging Face checkpoints in plain torch, on CPU and CUDA."""
