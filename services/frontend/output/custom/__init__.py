"""Custom tools: their input is a text, which the model writes as the one argument of a function."""
