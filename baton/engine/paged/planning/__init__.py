"""What a step computes, and what it costs."""
