"""Ports of this machine that stay reserved for the process that will listen on them."""

import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """Reserve a free TCP port of 127.0.0.1, which the kernel then assigns to no other process.

    It is bound without listening: a process that names it and sets SO_REUSEADDR, as servers do, can
    bind it.
    """
    with _bound() as held:
        yield held.getsockname()[1]


def hold_port(owner: object) -> int:
    """Reserve a port for as long as an object lives, and return it."""
    held = _bound()
    port: int = held.getsockname()[1]
    weakref.finalize(owner, os.close, held.detach())
    return port


def _bound() -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held
