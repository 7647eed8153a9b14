"""Where a request runs: its placements, worker streams and pauses, and what workers died of."""
