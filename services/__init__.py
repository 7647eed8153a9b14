"""The processes of Baton, one directory each; none imports another."""
