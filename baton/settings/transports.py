"""Names of KV transports, best first. Contract tests run with each of them."""

SHM = "shm"
GRPC = "grpc"
TRANSPORTS = (SHM, GRPC)
"""Between a worker and its store."""

NIXL = "nixl"
PEER_TRANSPORTS = (NIXL, GRPC)
"""Between stores of different hosts."""
