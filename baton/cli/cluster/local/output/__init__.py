"""What a local cluster tells on the terminal."""
