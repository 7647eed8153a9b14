"""One stream of a connection, and whoever serves or reads it."""

from collections import deque
from typing import Protocol

from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers


class StreamOwner(Protocol):
    """Takes what comes on a stream, synchronously, from the connection's reader.

    After `on_reset`, or once both sides have ended, nothing more is called.
    """

    def on_headers(self, headers: Headers, end: bool) -> None:
        """Take a response's head, or trailers; `end`: nothing follows."""
        ...

    def on_data(self, data: bytes | memoryview, end: bool) -> None:
        """Take what came of a DATA frame's payload.

        `Http2Connection.acknowledge` it once it is used. A view is valid until this returns.
        """
        ...

    def read_into(self, size: int) -> memoryview | None:
        """Return where the next bytes of data belong, at most `size`, for `on_data` to be given.

        None: nowhere yet.
        """
        ...

    def on_reset(self, code: ErrorCode, message: str) -> None:
        """Hear that the stream ended early: by the peer, or with a fault of it."""
        ...

    def on_drained(self) -> None:
        """Hear that no more than `Http2Stream.low_water` bytes wait for the peer's window."""
        ...


class _Nobody:
    """Owns streams that nobody serves or reads any more."""

    def on_headers(self, headers: Headers, end: bool) -> None: ...
    def on_data(self, data: bytes | memoryview, end: bool) -> None: ...
    def read_into(self, size: int) -> memoryview | None: ...
    def on_reset(self, code: ErrorCode, message: str) -> None: ...
    def on_drained(self) -> None: ...


NOBODY: StreamOwner = _Nobody()


class Http2Stream:
    """State of one stream. Its `Http2Connection` changes it; the owner reads `waiting_bytes`."""

    __slots__ = (
        "above_low_water",
        "answered",
        "expected_bytes",
        "got_head",
        "id",
        "local_closed",
        "low_water",
        "owner",
        "receive_window",
        "remote_closed",
        "send_window",
        "trailers",
        "unacknowledged",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, stream_id: int, send_window: int, receive_window: int) -> None:
        self.id = stream_id
        self.owner: StreamOwner
        self.send_window = send_window
        """Bytes that the peer lets this side send; negative after it shrank its windows."""
        self.receive_window = receive_window
        """Bytes that the peer may still send."""
        self.unacknowledged = 0
        """Bytes that were used, and not given back to the peer's window yet."""
        self.waiting: deque[memoryview] | None = None
        """Data that does not fit the peer's windows yet, oldest first."""
        self.waiting_bytes = 0
        self.low_water = 0
        """The owner is told when no more bytes than these wait."""
        self.above_low_water = False
        self.trailers: bytes | None = None
        """Header block that ends this side once nothing waits; empty: an END_STREAM flag does."""
        self.answered = False
        """This side has sent a header block on it."""
        self.local_closed = False
        self.remote_closed = False
        self.got_head = False
        self.expected_bytes = -1
        """Of the body that are still to come, where content-length says so."""
