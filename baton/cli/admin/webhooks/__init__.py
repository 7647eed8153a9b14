"""`baton webhooks`: list webhook endpoints and the attempts to deliver to them, and delete them."""
