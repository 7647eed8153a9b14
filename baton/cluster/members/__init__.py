"""Which processes are alive: registered, discovered, probed, and followed as they change."""
