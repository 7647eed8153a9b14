"""Many streams of a client multiplexed on one Session, transparently to its users."""
