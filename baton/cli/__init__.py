"""The `baton` command. Modules import heavy dependencies inside functions, so that it starts
quickly."""
