"""Models that take turns in simulated time: production's turns, another rule, and the fewest."""
