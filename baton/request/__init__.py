"""The contract of a request: grammar, limits, stream events, claims, prices and durations."""
