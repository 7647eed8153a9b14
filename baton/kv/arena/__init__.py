"""The arena's file, as the store and the clients that map it see it."""
