"""Benchmarks: each is one command that prints its measurements."""

import os

# Before anything imports grpc. uvloop starts programs with fork(), around which gRPC would stop its
# threads, and then says that it could not; what says so is all that it logs at INFO.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
