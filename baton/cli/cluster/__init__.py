"""Commands that start a cluster on this machine: `baton up`, `baton demo`."""
