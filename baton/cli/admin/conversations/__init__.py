"""`baton conversations`: list, show and delete stored conversations."""
