"""Read requests, and the objects that they wait for."""
