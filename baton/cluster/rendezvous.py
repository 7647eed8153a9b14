"""Rendezvous hashing: which of several instances a key belongs to, the same in every process."""

from collections.abc import Iterable
from hashlib import blake2b


def choose(key: bytes, ids: Iterable[str]) -> str:
    """Return the ID with the highest hash; removing an ID moves only the keys that belonged to it.

    Args:
        key: at most 64 bytes.
        ids: IDs of the instances, in any order.

    Raises:
        ValueError: `ids` is empty.
    """
    return max(ids, key=lambda one: blake2b(one.encode(), key=key).digest())
