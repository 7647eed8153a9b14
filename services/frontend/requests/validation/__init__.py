"""The validator, part by part: the request alone, with its model, and with its tokens."""
