"""What recording usage costs a frontend."""
