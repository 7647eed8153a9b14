"""`baton policies`: who may ask a model, and what answers in its place."""
