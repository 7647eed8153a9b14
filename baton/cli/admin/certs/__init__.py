"""`baton certs`: a certificate authority and certificates for a cluster."""
