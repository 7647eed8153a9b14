"""Workers' engines and a router on virtual time: what classes take from each other."""
