"""A frontend called by gRPC of other languages: `make interop`. Needs node and npm."""
