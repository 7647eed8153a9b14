"""Who decides where a simulated request runs: one file per policy, and the list of them."""
