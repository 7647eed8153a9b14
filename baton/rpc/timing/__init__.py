"""Timing of calls: time in which the loop did not run, stalls, backoff, pacing."""
