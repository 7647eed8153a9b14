"""Tools of request bodies, in the shapes of chat completions and of responses."""
