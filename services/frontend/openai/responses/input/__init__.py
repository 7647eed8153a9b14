"""The input of a response: its items, and the tools that it offers."""
