"""Real processes for tests: forked by a launcher that has imported everything, or newly started."""
