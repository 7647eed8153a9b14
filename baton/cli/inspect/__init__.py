"""Commands that show a cluster: members, settings, routes, stored KV."""
