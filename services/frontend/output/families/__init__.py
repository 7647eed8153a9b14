"""How families of models write tool calls: one table of states per family."""
