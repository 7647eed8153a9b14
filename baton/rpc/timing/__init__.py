"""Time as calls need it: what the loop lost, stalls, backoff, pacing."""
