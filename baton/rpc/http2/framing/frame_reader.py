"""Parses bytes into frames, with the limits and order that every connection enforces (RFC 9113,
section 4)."""

from collections.abc import Callable, Mapping

from baton.rpc.http2.data import DataReceiver
from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure, StreamFailure

_TURN_COST = 8 * 1024
"""Work of one `feed` call, in bytes of frames other than DATA. Header blocks take longest: up to
2.5 us a byte, if they are many short strings in Huffman code."""
_FRAME_COST = 128
"""Cost of each such frame in addition to its bytes."""
_MAX_KEPT_BYTES = 64 * 1024
"""Bytes buffered of an incomplete frame; all frames are buffered except DATA without padding."""

FrameHandler = Callable[[int, int, bytes], None]
"""Takes a frame's stream ID, flags and payload; raises StreamFailure or ConnectionFailure."""


class FrameReader:
    """Splits a peer's bytes into frames and passes each to its handler, in order.

    Checks what does not depend on a frame's meaning: the preface, SETTINGS first, the frame size,
    nothing between the frames of a header block.

    Incomplete DATA is passed on as it arrives, and never buffered.

    Args:
        data: handles DATA frames.
        handlers: handlers of other frames, by type.
        on_unknown: handles frames of any other type.
        on_stream_failure: ends the stream of a frame whose handler raised.
        preface: bytes that the peer must send before its first frame.
        max_frame_bytes: largest payload.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        data: DataReceiver,
        handlers: Mapping[int, FrameHandler],
        on_unknown: FrameHandler,
        on_stream_failure: Callable[[StreamFailure], None],
        *,
        preface: bytes,
        max_frame_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self.greeted = False
        """Whether the peer's first SETTINGS frame was received."""
        self.stopped = False
        """Whether further bytes are ignored."""
        self._data = data
        self._handlers = [handlers.get(kind, on_unknown) for kind in range(256)]
        self._on_stream_failure = on_stream_failure
        self._preface = preface
        """Bytes of the preface still to be received."""
        self._max_frame_bytes = max_frame_bytes
        self._usual_bytes = min(max_frame_bytes, _MAX_KEPT_BYTES)
        """Largest payload of frames that are buffered."""
        self._clock = clock
        self._left = 0
        """Work that remains in this turn."""
        self._rest = b""
        """Bytes of an incomplete frame."""
        self._block_of = 0
        """Stream of an unfinished header block; 0: none."""
        self._expecting = True
        """Whether only certain frames may follow: SETTINGS, or CONTINUATION."""
        self._since = 0.0
        """When the unfinished header block began, or else the incomplete frame."""

    @property
    def unfinished_since(self) -> float | None:
        """When the unfinished header block or frame began, by the clock; None: there is none."""
        unfinished = self._block_of or self._rest or self._data.left
        return self._since if unfinished else None

    def feed(self, data: bytes | memoryview) -> bool:
        """Process the next bytes.

        Returns:
            Whether whole frames remain: call again, with or without more bytes, after others had a
            turn, because the bytes of one read may take long to process.

        Raises:
            ConnectionFailure: the bytes violate the protocol.
        """
        begun = bool(self._rest)
        buffer = self._rest + data if begun else data
        at = self._read_preface(buffer) if self._preface else 0
        size = len(buffer)
        self._left = _TURN_COST
        if self._data.left:
            at = min(size, self._data.left)
            self._data.more(buffer[:at])
        unpack, handlers, usual = frames.unpack_head, self._handlers, self._usual_bytes
        while size - at >= frames.HEAD_BYTES and self._left > 0:
            high, low, kind, flags, stream_id = unpack(buffer, at)
            length = high << 16 | low
            if length > usual:
                self._check_length(length, kind, flags)
            begin = at + frames.HEAD_BYTES
            whole = size - begin >= length
            if not whole and (kind != codes.DATA or flags & codes.PADDED):
                break
            stream_id &= codes.MAX_STREAM_ID
            if kind != codes.DATA or self._expecting:
                self._left -= length + _FRAME_COST
                self._check_order(kind, flags, stream_id)
            at = begin + length if whole else size
            try:
                if kind != codes.DATA:
                    handlers[kind](stream_id, flags, bytes(buffer[begin:at]))
                elif whole:
                    self._data.on_data(stream_id, flags, buffer[begin:at])
                else:
                    self._since = self._clock()
                    self._data.begin(stream_id, flags, length)
            except StreamFailure as failure:
                self._on_stream_failure(failure)
            if not whole:
                self._data.more(buffer[begin:at])
        if self.stopped:
            return False
        self._rest = bytes(buffer[at:])
        if self._rest and not self._block_of and (at or not begun):
            self._since = self._clock()
        return self._left <= 0

    def charge(self, cost: int) -> None:
        """Count the work that a frame caused against the turn; a cost of 1 is 2.5 us."""
        self._left -= cost

    def stop(self) -> None:
        """Read nothing more, including bytes that were already fed."""
        self.stopped = True
        self._left = 0
        self._rest = b""

    def _check_length(self, length: int, kind: int, flags: int) -> None:
        if length > self._max_frame_bytes:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "a frame is too long")
        if kind != codes.DATA or flags & codes.PADDED:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "a long frame that is not DATA")

    def _read_preface(self, buffer: bytes | memoryview) -> int:
        """Return how many bytes of the buffer belong to the preface."""
        got = min(len(self._preface), len(buffer))
        if buffer[:got] != self._preface[:got]:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "this is not HTTP/2")
        self._preface = self._preface[got:]
        return got

    def _check_order(self, kind: int, flags: int, stream_id: int) -> None:
        if self._block_of and (kind != codes.CONTINUATION or stream_id != self._block_of):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "a frame within a header block")
        if not self.greeted:
            if kind != codes.SETTINGS or flags & codes.ACK:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
            self.greeted = True
        if kind == codes.HEADERS or kind == codes.CONTINUATION:
            self._block_of = 0 if flags & codes.END_HEADERS else stream_id
            if self._block_of and kind == codes.HEADERS:
                self._since = self._clock()
        self._expecting = self._block_of > 0
