"""A port that is in use is named, and who uses it if that is a cluster of this user.

One that a cluster chose is kept for it.
"""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from baton.cli.errors import CommandError
from baton.cli.local.files.rundir import LocalCluster, RunDirectory, base_directory
from baton.cli.local.ports import held_port, require_free


def test_a_second_cluster_is_told_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        with pytest.raises(CommandError, match=f"Port {port} on 127.0.0.1 is in use: stop"):
            require_free("127.0.0.1", port, "--http-port", "BATON_HTTP_PORT")
        with RunDirectory(base_directory()) as run:
            run.publish(LocalCluster((), "local", "127.0.0.1:1", f"127.0.0.1:{port}"))
            with pytest.raises(
                CommandError, match="in use by the cluster 'local' that runs here: stop"
            ):
                require_free("127.0.0.1", port, "--http-port", "BATON_HTTP_PORT")


IP_LOCAL_PORT_RANGE = 51  # not in this Python's socket


@pytest.fixture
def any_of() -> Iterator[Callable[[int], socket.socket]]:
    """Sockets to which the kernel gives a port of its choice: this one."""
    with ExitStack() as stack:

        def make(port: int) -> socket.socket:
            made = stack.enter_context(socket.socket())
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                chosen = struct.pack("I", port | port << 16)
                made.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, chosen)
            except OSError:
                pytest.skip("Linux before 6.3 lets no socket say which ports it may get")
            return made

        yield make


def test_a_held_port_is_given_to_nobody_who_asks_for_any(
    any_of: Callable[[int], socket.socket],
) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        with held_port() as port:
            with pytest.raises(OSError, match="Address already in use"):
                any_of(port).bind(("127.0.0.1", 0))
            with pytest.raises(OSError, match="Cannot assign"):
                any_of(port).connect(server.getsockname())
        any_of(port).bind(("127.0.0.1", 0))


def test_servers_that_name_a_held_port_get_it_again_and_again() -> None:
    with held_port() as port, ExitStack() as stack:
        for reuse_port in (0, 1, 1):
            server = stack.enter_context(socket.socket())
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, reuse_port)
            server.bind(("127.0.0.1", port))
            server.listen()
            if not reuse_port:
                server.close()
