"""A port that was chosen for a server is kept for it."""

import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from baton.host.ports import held_port, hold_port

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


def test_a_port_is_held_for_as_long_as_what_it_was_chosen_for(
    any_of: Callable[[int], socket.socket],
) -> None:
    class Server:
        pass

    owner = Server()
    port = hold_port(owner)
    with pytest.raises(OSError, match="Address already in use"):
        any_of(port).bind(("127.0.0.1", 0))
    del owner
    any_of(port).bind(("127.0.0.1", 0))
