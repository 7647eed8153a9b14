"""Ports of this machine that stay free for the process that is to listen on them."""

import os
import socket
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def held_port() -> Iterator[int]:
    """Choose a free TCP port of 127.0.0.1, and let the kernel give it to nobody who asks for any.

    It is bound and not listened on: who names it and sets SO_REUSEADDR, as servers do, gets it.
    """
    with _bound() as held:
        yield held.getsockname()[1]


def hold_port(owner: object) -> int:
    """Do the same for as long as an object lives, and return the port."""
    held = _bound()
    port: int = held.getsockname()[1]
    weakref.finalize(owner, os.close, held.detach())
    return port


def _bound() -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held
