"""Objects of other stores: who is asked for what, and what is under way."""
