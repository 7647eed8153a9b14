"""HTTP/2 (RFC 9113) without I/O, for gRPC: both sides, no push, no priorities."""
