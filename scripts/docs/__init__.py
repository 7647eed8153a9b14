"""Pages of docs/ that are generated from the code, one module per page."""
