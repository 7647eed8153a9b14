"""`baton classes`: the classes of requests in the queue."""
