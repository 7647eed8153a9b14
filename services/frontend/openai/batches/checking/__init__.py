"""The check of a batch's input, line by line."""
