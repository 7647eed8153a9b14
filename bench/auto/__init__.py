"""Rules of `auto` measured: agreement with labelled prompts, cost, and time of a choice."""
