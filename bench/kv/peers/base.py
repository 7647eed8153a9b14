"""The interface of a peer, and how it is started."""

import os
import secrets
import socket
from abc import ABC, abstractmethod
from pathlib import Path

from bench.kv.sizes import COUNT

PATTERN_BYTES = 4093
"""Data repeats after this many bytes, a prime: no two objects of a batch are alike."""


class Peer(ABC):
    """Another KV store and its client."""

    @abstractmethod
    def prepare(self, size: int) -> None:
        """Create a batch of new objects of one size, which `put` writes from now on."""

    @abstractmethod
    def put(self, keys: list[str]) -> None:
        """Write the batch."""

    @abstractmethod
    def get(self, keys: list[str]) -> None:
        """Read a batch."""

    @abstractmethod
    def check(self, keys: list[str]) -> None:
        """Read a batch and compare it with the written one."""

    @abstractmethod
    def remove(self, keys: list[str]) -> None:
        """Remove a batch."""

    @abstractmethod
    def exist(self, keys: list[str]) -> None:
        """Look up keys, all of which exist."""

    @abstractmethod
    def close(self) -> None:
        """End the store."""


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment(root: Path) -> dict[str, str]:
    """Return the environment in which programs of unpacked Debian packages find their libraries."""
    folders = (root / "usr/lib/x86_64-linux-gnu", root / "lib/x86_64-linux-gnu")
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(map(str, folders))}


def new_keys() -> list[str]:
    """Return the keys of a batch."""
    return [secrets.token_hex(16) for _ in range(COUNT)]


def content(size: int) -> bytes:
    """Return the bytes of a batch."""
    total = COUNT * size
    return (secrets.token_bytes(PATTERN_BYTES) * (total // PATTERN_BYTES + 1))[:total]
