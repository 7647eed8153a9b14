"""Nothing is loaded that is not used: who asks a cluster needs no server, a server no engine."""

import subprocess
import sys

_LOADED = """
import sys
before = set(sys.modules)
import {}
print(*sorted(set(sys.modules) - before))
"""
CLIENT = {"cython_runtime", "google", "grpc", "grpc_status", "msgspec"}
COMMANDS = CLIENT | {"annotated_doc", "rich", "shellingham", "typer"}
"""With the extra `cli`: typer's own dependencies included."""
OPTIONAL = {"grpc_health", "grpc_reflection", "grpc_tools", "typing_extensions"}
"""What grpc and msgspec import by themselves where it is installed."""
COMMANDS_OWN = ("baton.cli", "baton.host")
OWN = (
    "baton.client",
    "baton.errors",
    "baton.host.redaction",  # and its folder, which is nothing by itself
    "baton.request",
    "baton.sampling",
    "baton.v1",
)


def loaded(modules: str) -> set[str]:
    """Return the modules that importing some loads, the standard library's aside."""
    done = subprocess.run(
        [sys.executable, "-c", _LOADED.format(modules)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return {
        name
        for name in done.stdout.split()
        if name.partition(".")[0] not in sys.stdlib_module_names and not name.startswith("_")
    }


def others(names: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in names} - OPTIONAL - {"baton"}


def test_the_client_loads_neither_engine_nor_server() -> None:
    names = loaded("baton.client")
    assert others(names) == CLIENT
    assert not [name for name in names if name.startswith(("grpc_health.", "grpc_reflection."))]
    own = {name for name in names if name.startswith("baton.")} - {"baton.host"}
    assert not [name for name in own if not name.startswith(OWN)]


def test_asking_from_the_command_line_needs_no_server_either() -> None:
    names = loaded("baton.cli.app, baton.cli.chat, baton.cli.cluster.local.files.rundir")
    assert others(names) <= COMMANDS
    own = [name for name in names if name.startswith("baton.")]
    assert not [name for name in own if not name.startswith((*OWN, *COMMANDS_OWN))]


def test_a_process_loads_neither_an_engine_nor_what_its_libraries_would_like() -> None:
    unused = {"attr", "cryptography", "psutil", "rich", "torch", "typer"}
    frontend, router = (loaded(f"services.{name}.__main__") for name in ("frontend", "router"))
    assert not others(frontend) & {*unused, "numpy"}
    assert not others(router) & unused
    names = frontend | router
    # Imported where there is a collector, and where reflection is on.
    lazy = ("opentelemetry.sdk", "opentelemetry.exporter", "grpc_reflection.v1alpha._async")
    assert not [name for name in names if name.startswith(lazy)]
