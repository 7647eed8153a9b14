"""TLS of a process's servers and links: certificates out of files, and what their names allow."""
