"""Objects fetched from other stores: requests, and transfers in flight."""
