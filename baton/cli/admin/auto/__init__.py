"""`baton auto`: which models may answer requests for `auto`."""
