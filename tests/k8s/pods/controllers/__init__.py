"""How many pods there shall be, of which revision, and on which nodes."""
