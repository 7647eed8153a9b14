"""The steps from a client's request to the one that runs: model, tokens, grammar and seed."""
