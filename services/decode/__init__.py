"""The worker that writes answers: fetches the KV of prompts and streams tokens."""
