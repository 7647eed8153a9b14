"""LoRA adapters of a worker: those registered in the cluster, and those in the engine's memory."""
