"""What requests cost through a whole cluster, and what happens when parts of it fail."""
