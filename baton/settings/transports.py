"""Names of the transports of KV, best first. Contract tests run over each of them."""

SHM = "shm"
GRPC = "grpc"
TRANSPORTS = (SHM, GRPC)
"""Between a worker and its store."""

NIXL = "nixl"
PEER_TRANSPORTS = (NIXL, GRPC)
"""Between stores of different hosts."""
