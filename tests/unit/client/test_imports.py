"""The client is for programs that serve nothing: importing it loads what it uses, no more."""

import subprocess
import sys

_LOADED = """
import sys
before = set(sys.modules)
import baton.client
print(*sorted(set(sys.modules) - before))
"""
ALLOWED = {"baton", "cython_runtime", "google", "grpc", "grpc_status", "msgspec"}
OPTIONAL = {"grpc_health", "grpc_reflection", "grpc_tools", "typing_extensions"}
"""What grpc and msgspec import by themselves where it is installed."""
OWN = ("baton.client", "baton.errors", "baton.sampling", "baton.stream_events", "baton.v1")


def test_the_client_loads_neither_engine_nor_server() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _LOADED], capture_output=True, text=True, timeout=60, check=True
    )
    names = done.stdout.split()
    roots = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert {root for root in roots if not root.startswith("_")} - OPTIONAL == ALLOWED
    own = [name for name in names if name.startswith("baton.") and not name.startswith(OWN)]
    assert own == []
    assert not [name for name in names if name.startswith(("grpc_health.", "grpc_reflection."))]
