"""Messages between the worker and a rank, over a socket pair of abstract Unix addresses."""

import socket
import struct

import msgspec

from baton.engine.sampling.draw import Sampled

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class Join(msgspec.Struct, tag=True, frozen=True):
    """First message of a rank that has allocated its pages."""

    rank: int
    part_bytes: tuple[int, ...]
    """Bytes of the rank's part of a block, per group."""
    backend: str
    isa: str


class Share(msgspec.Struct, tag=True, frozen=True):
    """Response to all ranks that joined: memory of the worker that the rank maps."""

    path: str
    size: int
    offsets: tuple[int, ...]
    """Offset of the rank's part within a block, per group."""
    block_bytes: tuple[int, ...]


class Read(msgspec.Struct, tag=True, frozen=True):
    """Copy parts of pages into shared memory."""

    group: int
    pages: tuple[int, ...]
    at: int
    """Position of the first block in shared memory; the others follow it."""


class Write(msgspec.Struct, tag=True, frozen=True):
    """Copy parts of blocks from shared memory into pages."""

    group: int
    pages: tuple[int, ...]
    at: int


class Clear(msgspec.Struct, tag=True, frozen=True):
    """Fill a page with zeros."""

    group: int
    page: int


class TakeDraws(msgspec.Struct, tag=True, frozen=True):
    """Request the tokens that were sampled for an output position of a request."""

    name: str
    position: int


class ForgetDraws(msgspec.Struct, tag=True, frozen=True):
    """Drop the tokens that were sampled for a request."""

    name: str


class Done(msgspec.Struct, tag=True, frozen=True):
    """The requested operation is complete."""

    sampled: tuple[Sampled, ...] = ()


class Failed(msgspec.Struct, tag=True, frozen=True):
    """The requested operation failed."""

    error: str


ToRank = Share | Read | Write | Clear | TakeDraws | ForgetDraws
ToWorker = Join | Done | Failed

_to_rank: msgspec.msgpack.Decoder[ToRank] = msgspec.msgpack.Decoder(ToRank)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def send(to: socket.socket, message: msgspec.Struct) -> None:
    """Send a message.

    Raises:
        OSError: the peer has disconnected.
    """
    data = msgspec.msgpack.encode(message)
    to.sendall(_LENGTH.pack(len(data)) + data)


def receive_by_rank(source: socket.socket) -> ToRank:
    """Receive the worker's next message.

    Raises:
        OSError, EOFError: the peer has disconnected.
    """
    return _to_rank.decode(_receive(source))


def receive_by_worker(source: socket.socket) -> ToWorker:
    """Receive a rank's next message.

    Raises:
        OSError, EOFError: the peer has disconnected.
    """
    return _to_worker.decode(_receive(source))


def _receive(source: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_receive_exactly(source, _LENGTH.size))
    if length > MAX_MESSAGE_BYTES:
        raise EOFError(f"a message of {length} bytes is invalid")
    return _receive_exactly(source, length)


def _receive_exactly(source: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        piece = source.recv(count - len(data))
        if not piece:
            raise EOFError("the peer exited")
        data += piece
    return bytes(data)
