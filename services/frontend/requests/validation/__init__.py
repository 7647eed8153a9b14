"""The one validator, part by part: what a request may be, with its model and its tokens."""
