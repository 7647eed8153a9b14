"""A push: objects that one store asks another to write into its arena by NIXL."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from services.kvstore.peers.transfer import Transfer

PUSH_BYTES = 32 * 1024 * 1024
"""Bytes of one push of small objects: one is checked while the next is written. Between two pushes
the network is idle for a round trip; shorter ones were measured to be slower."""
PUSH_OBJECTS = 1024
NOTIFICATION = struct.Struct("<q")
"""The writing agent's notification of a completed push: its number."""


@dataclass(eq=False, slots=True)
class Push:
    """Transfers that a peer is to write together. Owned by its NixlReceiver."""

    push_id: int
    transfers: Sequence[Transfer]
    size_bytes: int
    deadline: float


def in_pushes(transfers: Sequence[Transfer]) -> Iterator[list[Transfer]]:
    """Split transfers into pushes."""
    part: list[Transfer] = []
    size = 0
    for transfer in transfers:
        if part and (size + size_of(transfer) > PUSH_BYTES or len(part) >= PUSH_OBJECTS):
            yield part
            part, size = [], 0
        part.append(transfer)
        size += size_of(transfer)
    if part:
        yield part


def size_of(transfer: Transfer) -> int:
    """Return the length of a leased object."""
    return transfer.leased.object_bytes if transfer.leased is not None else 0
