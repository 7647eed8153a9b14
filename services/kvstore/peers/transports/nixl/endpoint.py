"""The NIXL endpoint of a store's memory, and the check of another store's endpoint."""

import struct
from dataclasses import dataclass
from typing import Self

from xxhash import xxh3_128_digest

from baton.internal.v1 import kvstore_pb2 as pb

MAX_METADATA_BYTES = 64 * 1024
_HEAD = b"nixlSerDes|Agent"
_LENGTH = struct.Struct("<Q")


class NixlError(Exception):
    """NIXL is not available, or an operation failed."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The NIXL address of a store's memory, as in `pb.NixlEndpoint`."""

    agent: str
    metadata: bytes
    address: int
    size_bytes: int

    def message(self) -> pb.NixlEndpoint:
        """Return the endpoint as a message."""
        return pb.NixlEndpoint(
            agent=self.agent,
            metadata=self.metadata,
            metadata_digest=xxh3_128_digest(self.metadata),
            address=self.address,
            size_bytes=self.size_bytes,
        )

    @classmethod
    def checked(cls, message: pb.NixlEndpoint, agent: str) -> Self:
        """Return the checked endpoint from another process's message.

        Args:
            message: the message.
            agent: the name that the sender's agent must have.

        Raises:
            NixlError: it is damaged or another agent's, and must not be loaded.
        """
        metadata = message.metadata
        if len(metadata) > MAX_METADATA_BYTES:
            raise NixlError(f"metadata must have at most {MAX_METADATA_BYTES} bytes")
        if xxh3_128_digest(metadata) != message.metadata_digest:
            raise NixlError("metadata does not match its digest")
        if message.agent != agent or name_in(metadata) != agent:
            raise NixlError(f"metadata is of another agent than {agent}")
        if message.size_bytes <= 0 or message.address + message.size_bytes > 1 << 64:
            raise NixlError("an arena must have a length above 0 and lie in memory")
        return cls(agent, metadata, message.address, message.size_bytes)


def agent_name(store_id: str, incarnation: str) -> str:
    """Return the name of a store's agent; a restarted store is another agent."""
    return f"{store_id}/{incarnation}"


def name_in(metadata: bytes) -> str | None:
    """Return the name of the agent in metadata; None if it is not metadata."""
    start = len(_HEAD) + _LENGTH.size
    if not metadata.startswith(_HEAD) or len(metadata) < start:
        return None
    (length,) = _LENGTH.unpack_from(metadata, len(_HEAD))
    name = metadata[start : start + length]
    if len(name) != length or metadata[start + length : start + length + 1] != b"|":
        return None
    return name.decode("utf-8", "replace")
