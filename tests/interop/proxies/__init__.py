"""HAProxy and nginx in front of a frontend: what they make of requests, and what comes back."""
