"""`baton up --on-demand`: models whose workers start when a request comes, and end for others'."""
