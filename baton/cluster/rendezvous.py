"""Rendezvous hashing: which of several instances a key belongs to, the same in every process."""

from collections.abc import Iterable
from hashlib import blake2b


def choose(key: bytes, ids: Iterable[str]) -> str:
    """Return the id with the highest hash: one that leaves changes only its own keys.

    Args:
        key: at most 64 bytes.
        ids: of the instances, in any order.

    Raises:
        ValueError: there are none.
    """
    return max(ids, key=lambda one: blake2b(one.encode(), key=key).digest())
