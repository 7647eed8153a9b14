"""TLS of a process's servers and connections: certificate files, and what certificate names
allow."""
