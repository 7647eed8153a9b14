"""What keys, limits and usage cost, how soon changes are in force, and what they give away."""
