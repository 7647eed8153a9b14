"""`baton certs`: an authority and certificates for a cluster."""
