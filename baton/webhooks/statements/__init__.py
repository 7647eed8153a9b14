"""The statements of webhooks, one module per table."""
