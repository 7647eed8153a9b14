"""What a router was told and decided, in files: `baton simulate --replay` runs it again."""
