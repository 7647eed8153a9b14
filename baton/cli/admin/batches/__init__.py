"""`baton batches`: list, show and cancel batches."""
