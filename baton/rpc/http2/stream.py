"""One stream of a connection, and its owner."""

from collections import deque
from typing import Protocol

from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers


class StreamOwner(Protocol):
    """Receives the events of a stream, synchronously, from the connection's reader.

    After `on_reset`, or once both sides have ended, no method is called.
    """

    def on_headers(self, headers: Headers, end: bool) -> None:
        """Handle a response's head, or trailers; `end`: nothing follows."""
        ...

    def on_data(self, data: bytes | memoryview, end: bool) -> None:
        """Handle bytes of a DATA frame's payload.

        Call `Http2Connection.acknowledge` once they are used. A view is valid until this returns.
        """
        ...

    def read_into(self, size: int) -> memoryview | None:
        """Return the buffer for the next bytes of data, at most `size`, which `on_data` then
        receives.

        None: there is none yet.
        """
        ...

    def on_reset(self, code: ErrorCode, message: str) -> None:
        """Handle that the stream ended early: by the peer, or because of its violation."""
        ...

    def on_drained(self) -> None:
        """Handle that at most `Http2Stream.low_water` bytes wait for the peer's window."""
        ...


class _Nobody:
    """Owner of streams that are no longer served or read."""

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
        """Bytes used, and not yet returned to the peer's window."""
        self.waiting: deque[memoryview] | None = None
        """Data that does not fit into the peer's windows yet, oldest first."""
        self.waiting_bytes = 0
        self.low_water = 0
        """The owner is notified when at most this many bytes wait."""
        self.above_low_water = False
        self.trailers: bytes | None = None
        """Header block that ends this side once no data waits; empty: an END_STREAM flag ends
        it."""
        self.answered = False
        """Whether this side has sent a header block on the stream."""
        self.local_closed = False
        self.remote_closed = False
        self.got_head = False
        self.expected_bytes = -1
        """Bytes of the body still to be received, if content-length gives its size."""
