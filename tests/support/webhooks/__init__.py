"""What tests of webhooks stand on: a receiver, and what delivers to it."""
