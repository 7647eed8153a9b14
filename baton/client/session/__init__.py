"""Many streams of a client on one Session, unseen by its users."""
