"""The contract of a request: grammar, limits, stream events, the claim on an execution, and prices."""
