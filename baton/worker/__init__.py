"""What prefill and decode workers share: an engine, its streams to frontends, its KV traffic."""
