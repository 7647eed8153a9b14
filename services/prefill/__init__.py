"""The worker that reads prompts: computes their KV, samples each first token, commits the KV."""
