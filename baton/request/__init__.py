"""The contract of a request: grammar, limits, stream events, execution claims and prices."""
