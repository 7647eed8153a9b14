"""The router's knowledge of workers and stores: load, rates, tickets, model cards."""
