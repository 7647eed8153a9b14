"""Length-prefixed messages in a stream of bytes."""

from struct import Struct
from typing import cast

from baton.errors import BatonError, Reason
from baton.rpc.wire.compression import IDENTITY, decompress, too_large

PREFIX_BYTES = 5
_PREFIX = Struct(">BI")
_NO_ROOM = memoryview(bytearray())
_ROOM = 16
"""Buffer size of an incomplete message, as a multiple of the bytes received: all of a 1 MiB message
after its first frame, and next to nothing for one of which only the length arrived."""

Data = bytes | bytearray
"""A message as received: a separate bytearray if it was joined from several pieces."""
Parts = tuple[bytes | memoryview, ...]
"""A message as pieces that are joined only by the socket: they must not change until they are sent.
The first is bytes, and short."""


def frame_message(message: bytes | Parts) -> Parts:
    """Return a message as sent on the wire."""
    if isinstance(message, tuple):
        size = sum([len(part) for part in message])
        return (b"".join((_PREFIX.pack(0, size), message[0])), *message[1:])
    return (_PREFIX.pack(0, len(message)) + message,)


class MessageReader:
    """Splits a stream of bytes into messages.

    Args:
        max_bytes: largest message, as received and decompressed.
        encoding: encoding of compressed messages, as `grpc-encoding` names it.
    """

    __slots__ = ("_compressed", "_encoding", "_filled", "_length", "_max_bytes", "_prefix", "_room")

    def __init__(self, max_bytes: int, encoding: bytes = IDENTITY) -> None:
        self._max_bytes = max_bytes
        self._encoding = encoding
        self._prefix = b""
        """Received bytes of the next message's prefix."""
        self._room: memoryview | None = None
        """Buffer of the incomplete message, without its prefix; None: there is none."""
        self._filled = 0
        self._length = 0
        self._compressed = False

    @property
    def partial_bytes(self) -> int:
        """Bytes buffered of an incomplete message."""
        if self._room is None:
            return len(self._prefix)
        return PREFIX_BYTES + len(self._room)

    def feed(self, data: bytes | memoryview) -> list[Data]:
        """Process the next bytes; return the messages that they complete, which are copies.

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
        """Return the buffer for the next bytes, at most `size`; None: there is none yet.

        Bytes read into it need not be copied if `feed` is given that part of it.
        """
        if self._room is None:
            return None
        return self._room[self._filled : self._filled + size]

    def _fill(self, data: bytes | memoryview) -> int:
        """Copy bytes into the unfinished message; return how many belong to it."""
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
