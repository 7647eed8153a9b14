"""Length-prefixed messages in a stream of bytes."""

from struct import Struct
from typing import cast

from baton.errors import BatonError, Reason
from baton.rpc.wire.compression import IDENTITY, compress, decompress, too_large

PREFIX_BYTES = 5
_PREFIX = Struct(">BI")
_NO_ROOM = memoryview(bytearray())
_ROOM = 16
"""Times what came of a message is what it gets room for: all of one of 1 MiB when its first frame
came, and next to nothing for one that only says how long it is."""

Data = bytes | bytearray
"""A message as it came: a bytearray of its own where it was gathered from several pieces."""
Parts = tuple[bytes | memoryview, ...]
"""A message as pieces that are joined only by the socket: they must not change until they are sent.
The first is bytes, and short."""


def frame_message(message: bytes | Parts, encoding: bytes = IDENTITY) -> Parts:
    """Return a message as it goes over the wire."""
    if encoding != IDENTITY:
        packed = compress(encoding, b"".join(message) if isinstance(message, tuple) else message)
        return (_PREFIX.pack(1, len(packed)) + packed,)
    if isinstance(message, tuple):
        size = sum([len(part) for part in message])
        return (b"".join((_PREFIX.pack(0, size), message[0])), *message[1:])
    return (_PREFIX.pack(0, len(message)) + message,)


class MessageReader:
    """Cuts a stream of bytes into messages.

    Args:
        max_bytes: of a message, as it comes and decompressed.
        encoding: of compressed messages, as `grpc-encoding` names it.
    """

    __slots__ = ("_compressed", "_encoding", "_filled", "_length", "_max_bytes", "_prefix", "_room")

    def __init__(self, max_bytes: int, encoding: bytes = IDENTITY) -> None:
        self._max_bytes = max_bytes
        self._encoding = encoding
        self._prefix = b""
        """What came of the next message's prefix."""
        self._room: memoryview | None = None
        """Of the message that is not whole yet, without its prefix; None: there is none."""
        self._filled = 0
        self._length = 0
        self._compressed = False

    @property
    def partial_bytes(self) -> int:
        """What is kept of a message that is not whole yet."""
        if self._room is None:
            return len(self._prefix)
        return PREFIX_BYTES + len(self._room)

    def feed(self, data: bytes | memoryview) -> list[Data]:
        """Take the next bytes; return the messages that they complete, which are copies.

        Raises:
            BatonError: BODY_TOO_LARGE or MALFORMED_BODY; nothing may be fed after it.
        """
        messages: list[Data] = []
        at = 0
        if self._room is not None:
            at = self._fill(data)
            if self._filled < self._length:
                return messages
            messages.append(self._take())
        elif self._prefix:
            data, self._prefix = self._prefix + data, b""
        size = len(data)
        while size - at >= PREFIX_BYTES:
            compressed, length = _PREFIX.unpack_from(data, at)
            if compressed > 1:
                raise BatonError(Reason.MALFORMED_BODY, "a message's flag is neither 0 nor 1")
            if length > self._max_bytes:
                raise too_large(self._max_bytes)
            at += PREFIX_BYTES
            end = at + length
            if end > size:
                self._compressed, self._length, self._filled = compressed, length, 0
                self._room = _NO_ROOM
                self._fill(data[at:])
                return messages
            message = bytes(data[at:end])
            messages.append(self._decompress(message) if compressed else message)
            at = end
        if at < size:
            self._prefix = bytes(data[at:])
        return messages

    def room(self, size: int) -> memoryview | None:
        """Return where the next bytes belong, at most `size`; None: nowhere yet.

        They need not be copied if they are read into it, and `feed` is given that part of it.
        """
        if self._room is None:
            return None
        return self._room[self._filled : self._filled + size]

    def _fill(self, data: bytes | memoryview) -> int:
        """Copy bytes into the message that has begun; return how many are its own."""
        assert self._room is not None
        size = min(len(data), self._length - self._filled)
        end = self._filled + size
        if end > len(self._room):
            room = memoryview(bytearray(min(self._length, _ROOM * end)))
            room[: self._filled] = self._room[: self._filled]
            self._room = room
        if not isinstance(data, memoryview) or data.obj is not self._room.obj:
            self._room[self._filled : end] = data[:size]
        self._filled = end
        return size

    def _take(self) -> Data:
        assert self._room is not None
        message = cast(bytearray, self._room.obj)
        self._room = None
        return self._decompress(message) if self._compressed else message

    def _decompress(self, message: Data) -> bytes:
        return decompress(self._encoding, message, self._max_bytes)
