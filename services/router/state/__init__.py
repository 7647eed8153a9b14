"""What the router knows of workers and stores: load, rates, tickets, model cards."""
