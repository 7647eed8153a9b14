"""OpenAI's Batches: created from files of requests, checked, run and written out by frontends."""
