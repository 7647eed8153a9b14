"""Benchmarks: each is one command that prints its measurements."""

import os

# Before anything imports grpc. uvloop starts programs with fork(): gRPC would try to stop its
# threads around that, and log that it cannot. It logs nothing else at INFO.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
