"""The `baton` command. Modules import what is heavy inside functions, so that it starts at once."""
