"""Outputs that keep to grammars: whether they do, what it costs, and what hostile grammars do."""
