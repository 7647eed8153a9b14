"""Why requests run where they do: the latest decisions, and what they were made on. Pure."""
