"""Long contexts on one machine: prefill, memory, KV on disk and back, streams meanwhile, quotas."""
