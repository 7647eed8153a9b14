"""How a client's request becomes one that runs: its model, its tokens, its grammar and its seed."""
