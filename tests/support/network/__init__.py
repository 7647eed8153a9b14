"""Networks that tests break: proxies, and names of this machine."""
