"""What the worker and a rank say to each other, over a socket pair of abstract Unix addresses."""

import socket
import struct

import msgspec

from baton.engine.sampling.draw import Sampled

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_LENGTH = struct.Struct("<I")


class Join(msgspec.Struct, tag=True, frozen=True):
    """The first message, of a rank that has its pages."""

    rank: int
    part_bytes: int
    """Bytes of its part of a block."""
    backend: str
    isa: str


class Share(msgspec.Struct, tag=True, frozen=True):
    """The answer to all who joined: memory of the worker's that the rank maps."""

    path: str
    size: int
    offset: int
    """Where the rank's part begins within a block."""
    block_bytes: int


class Read(msgspec.Struct, tag=True, frozen=True):
    """Copy parts of pages into shared memory."""

    pages: tuple[int, ...]
    at: int
    """Where the first block begins in shared memory; the others follow it."""


class Write(msgspec.Struct, tag=True, frozen=True):
    """Copy parts of blocks from shared memory into pages."""

    pages: tuple[int, ...]
    at: int


class Clear(msgspec.Struct, tag=True, frozen=True):
    """Fill a page with zeros."""

    page: int


class TakeDraws(msgspec.Struct, tag=True, frozen=True):
    """Say what was drawn of a request for an output position."""

    name: str
    position: int


class ForgetDraws(msgspec.Struct, tag=True, frozen=True):
    """Forget what was drawn of a request."""

    name: str


class Done(msgspec.Struct, tag=True, frozen=True):
    """What was asked is done."""

    sampled: tuple[Sampled, ...] = ()


class Failed(msgspec.Struct, tag=True, frozen=True):
    """What was asked cannot be done."""

    error: str


ToRank = Share | Read | Write | Clear | TakeDraws | ForgetDraws
ToWorker = Join | Done | Failed

_to_rank: msgspec.msgpack.Decoder[ToRank] = msgspec.msgpack.Decoder(ToRank)
_to_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def send(to: socket.socket, message: msgspec.Struct) -> None:
    """Send a message.

    Raises:
        OSError: the other side is gone.
    """
    data = msgspec.msgpack.encode(message)
    to.sendall(_LENGTH.pack(len(data)) + data)


def receive_by_rank(source: socket.socket) -> ToRank:
    """Receive the worker's next message.

    Raises:
        OSError, EOFError: the other side is gone.
    """
    return _to_rank.decode(_receive(source))


def receive_by_worker(source: socket.socket) -> ToWorker:
    """Receive a rank's next message.

    Raises:
        OSError, EOFError: the other side is gone.
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
