"""`/v1/webhook_endpoints`: what projects' endpoints are, and tests of them."""
