"""The plain HTTP port for whoever runs a process: /livez, /readyz and /metrics."""
