"""The streams of a connection: how each opens and ends (RFC 9113, section 5.1)."""

from collections import OrderedDict

from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure, StreamFailure
from baton.rpc.http2.limits import Budgets, ConnectionLimits
from baton.rpc.http2.sender import Sender
from baton.rpc.http2.stream import Http2Stream, StreamOwner

_REMEMBERED = 256
"""Streams reset by this side that are remembered, because frames of them may be in flight."""
_MAX_UNTOLD = 100
"""Streams to open before the peer has sent its limit, as gRPC for Go and Java do: most servers
accept that many (RFC 9113, section 6.5.2), and others would have to reject them."""


class Streams:
    """The open streams, and what is known of ended ones.

    Args:
        sender: sender of the connection.
        budgets: budgets of the peer.
        limits: how many streams the peer may open, and their windows.
        client: whether this side opens streams, or accepts them.
    """

    def __init__(
        self, sender: Sender, budgets: Budgets, limits: ConnectionLimits, *, client: bool
    ) -> None:
        self.open: dict[int, Http2Stream] = {}
        """Open streams by ID."""
        self.last_remote = 0
        """ID of the last stream that the peer opened."""
        self.max_local = _MAX_UNTOLD
        """Concurrent streams that the peer allows this side."""
        self._sender = sender
        self._budgets = budgets
        self._limits = limits
        self._client = client
        self._next_local = 1
        self._reset_here: OrderedDict[int, None] = OrderedDict()
        self._last_taken = codes.MAX_STREAM_ID
        """Streams with a larger ID are ignored."""

    # Opening streams.

    @property
    def has_room(self) -> bool:
        """Whether this side may open one more stream now."""
        return len(self.open) < self.max_local and not self.used_up

    @property
    def used_up(self) -> bool:
        """Whether this side has no stream IDs left."""
        return self._next_local > codes.MAX_STREAM_ID

    def open_local(self, owner: StreamOwner) -> Http2Stream:
        """Open a stream; clients only."""
        stream = self._new(self._next_local)
        self._next_local += 2
        stream.owner = owner
        self.open[stream.id] = stream
        return stream

    def admit(self, stream_id: int) -> bool:
        """Return whether to serve a stream whose HEADERS arrived.

        Raises:
            ConnectionFailure: the ID is invalid or was already used.
            StreamFailure: there are too many streams.
        """
        if self._client or stream_id <= self.last_remote:
            if stream_id in self._reset_here:
                return False
            code = ErrorCode.PROTOCOL_ERROR
            if not self._client or (stream_id % 2 and stream_id < self._next_local):
                code = ErrorCode.STREAM_CLOSED
            raise ConnectionFailure(code, "HEADERS on a stream that is not open")
        self.last_remote = stream_id
        if stream_id > self._last_taken:
            self._remember(stream_id)
            return False
        if len(self.open) >= self._limits.max_streams:
            raise StreamFailure(stream_id, ErrorCode.REFUSED_STREAM, "too many streams")
        return True

    def open_remote(self, stream_id: int, expected_bytes: int, *, end: bool) -> Http2Stream:
        """Open a stream that was admitted; the caller sets its owner.

        Args:
            stream_id: ID that the peer chose.
            expected_bytes: size of its body; -1: unknown.
            end: the peer sends nothing more.
        """
        stream = self._new(stream_id)
        stream.got_head, stream.expected_bytes = True, expected_bytes
        stream.remote_closed = end
        self.open[stream_id] = stream
        return stream

    def refuse_new(self) -> None:
        """Accept no streams after the last one received; servers only."""
        self._last_taken = self.last_remote

    @property
    def last_taken(self) -> int:
        """The largest ID of a stream that is or would be served."""
        return self._last_taken

    # Looking up streams.

    def known(self, stream_id: int, kind: str) -> Http2Stream | None:
        """Return an open stream, None for one that has ended.

        Raises:
            ConnectionFailure: the stream was never opened.
        """
        stream = self.open.get(stream_id)
        if stream is None:
            own = stream_id % 2 == 1 if self._client else stream_id % 2 == 0
            opened = self._next_local if self._client and own else self.last_remote + 1
            if not stream_id or stream_id >= opened or (own and not self._client):
                raise ConnectionFailure(
                    ErrorCode.PROTOCOL_ERROR, f"{kind} on a stream that is not open"
                )
        return stream

    def expect_late(self, stream_id: int) -> None:
        """Ignore a frame of a stream that this side has reset: it was in flight.

        Raises:
            StreamFailure: the peer has ended that stream itself.
        """
        if stream_id not in self._reset_here:
            raise StreamFailure(stream_id, ErrorCode.STREAM_CLOSED, "the stream has ended")

    # Ending streams.

    def finish(self, stream: Http2Stream) -> None:
        """Record that this side of a stream has ended."""
        if stream.remote_closed:
            self.open.pop(stream.id, None)
        elif not self._client:
            # The answer does not depend on what is still to come (RFC 9113, section 8.1).
            self.reset(stream, ErrorCode.NO_ERROR)

    def end_remote(self, stream: Http2Stream) -> None:
        """Record that the peer's side of a stream has ended."""
        stream.remote_closed = True
        if stream.local_closed:
            self.open.pop(stream.id, None)

    def reset(self, stream: Http2Stream, code: ErrorCode) -> None:
        """End a stream early; its owner receives no more calls. An ended stream is left
        unchanged."""
        if self.open.pop(stream.id, None) is not None:
            self._sender.forget(stream)
            self._remember(stream.id)
            self._sender.put(frames.rst_stream(stream.id, code))

    def fail(self, failure: StreamFailure) -> None:
        """End a stream because of a violation by the peer.

        Raises:
            ConnectionFailure: it does so too often.
        """
        self._budgets.resets.spend("streams that fail")
        self._remember(failure.stream_id)
        self._sender.put(frames.rst_stream(failure.stream_id, failure.code))
        stream = self.open.pop(failure.stream_id, None)
        if stream is not None:
            self._end_early(stream, failure.code, failure.message)

    def end_after(self, last: int, code: ErrorCode, message: str) -> None:
        """End the streams with an ID larger than `last`; all of them with 0."""
        # All are removed before the first owner is notified.
        ended = [self.open.pop(stream_id) for stream_id in list(self.open) if stream_id > last]
        for stream in ended:
            self._end_early(stream, code, message)

    def on_rst_stream(self, stream_id: int, flags: int, payload: bytes) -> None:  # noqa: ARG002
        """Handle a RST_STREAM frame."""
        if len(payload) != 4:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "RST_STREAM is not 4 bytes")
        stream = self.known(stream_id, "RST_STREAM")
        if stream is None or not stream.answered:
            self._budgets.resets.spend("streams that are reset")
        if stream is not None:
            del self.open[stream_id]
            code = codes.error_code(int.from_bytes(payload, "big"))
            self._end_early(stream, code, "the peer reset the stream")

    def _new(self, stream_id: int) -> Http2Stream:
        return Http2Stream(stream_id, self._sender.initial_window, self._limits.stream_window)

    def _end_early(self, stream: Http2Stream, code: ErrorCode, message: str) -> None:
        self._sender.forget(stream)
        stream.owner.on_reset(code, message)

    def _remember(self, stream_id: int) -> None:
        self._reset_here[stream_id] = None
        if len(self._reset_here) > _REMEMBERED:
            self._reset_here.popitem(last=False)
