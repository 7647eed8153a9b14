"""What keeps the state true: discovery, and the streams of each worker and store."""
