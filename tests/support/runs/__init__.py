"""How tests run: their environment and order, and tests that hang."""
