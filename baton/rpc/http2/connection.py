"""One side of an HTTP/2 connection: takes bytes, calls the owners of streams, produces bytes."""

from collections.abc import Callable
from time import monotonic

from baton.rpc.http2.control import ControlFrames
from baton.rpc.http2.data import DataReceiver
from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure
from baton.rpc.http2.framing.frame_reader import FrameReader
from baton.rpc.http2.framing.header_blocks import HeaderBlocks
from baton.rpc.http2.limits import DEFAULT_LIMITS, Budgets, ConnectionLimits
from baton.rpc.http2.owner import NO_OWNER, ConnectionOwner
from baton.rpc.http2.sender import Sender
from baton.rpc.http2.stream import Http2Stream, StreamOwner
from baton.rpc.http2.streams import Streams


class Http2Connection:
    """State of one side of an HTTP/2 connection. Not thread-safe; all methods are synchronous.

    A protocol violation by the peer never raises here: it ends the stream (RST_STREAM) or the
    connection (GOAWAY, `ConnectionOwner.on_closed`).

    Args:
        owner: receives events of the connection.
        client: whether this side opens streams, or accepts them.
        wake: called when `take_output` has data after having none.
        limits: limits on what the peer may use.
        clock: monotonic, in seconds.
    """

    def __init__(
        self,
        owner: ConnectionOwner,
        *,
        client: bool,
        wake: Callable[[], None],
        limits: ConnectionLimits = DEFAULT_LIMITS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._owner = owner
        self._client = client
        budgets = Budgets(limits, clock)
        self._sender = sender = Sender(wake, self._finish, budgets)
        self._streams = streams = Streams(sender, budgets, limits, client=client)
        self._data = DataReceiver(streams, sender, budgets, limits)
        self._blocks = blocks = HeaderBlocks(owner, streams, budgets, limits, client=client)
        self._control = control = ControlFrames(
            owner, streams, sender, budgets, limits, client=client
        )
        self._reader = FrameReader(
            self._data,
            {
                codes.HEADERS: blocks.on_headers,
                codes.PRIORITY: control.on_priority,
                codes.RST_STREAM: streams.on_rst_stream,
                codes.SETTINGS: control.on_settings,
                codes.PUSH_PROMISE: control.on_push_promise,
                codes.PING: control.on_ping,
                codes.GOAWAY: control.on_goaway,
                codes.WINDOW_UPDATE: control.on_window_update,
                codes.CONTINUATION: blocks.on_continuation,
            },
            control.on_unknown,
            streams.fail,
            preface=b"" if client else codes.PREFACE,
            max_frame_bytes=limits.max_frame_bytes,
            clock=clock,
        )
        self._clock = clock
        self._unfinished_seconds = limits.unfinished_seconds
        self.streams = streams.open
        """Open streams, by ID."""
        # Bound directly, because every message passes through them.
        self.send_data = sender.data
        """`send_data(stream, data, end)`: send data; what the peer's windows do not allow yet waits
        in `stream.waiting_bytes`. Large data is not copied: it must not change until it is
        written."""
        self.acknowledge = self._data.acknowledge
        """`acknowledge(stream, size)`: let the peer send that many more bytes, after they were
        used."""
        self.charge = self._reader.charge
        """`charge(cost)`: shorten the current turn of `receive` by the work that a DATA frame
        caused; a cost of 1 is 2.5 us."""
        self.read_into = self._data.read_into
        """`read_into()`: return the buffer for the next bytes, of which `receive` is then given
        those that were read; None: there is none yet."""
        self._greet(limits)

    @property
    def greeted(self) -> bool:
        """Whether the peer's first SETTINGS frame was received."""
        return self._reader.greeted

    @property
    def closed(self) -> bool:
        """Whether this side sent a GOAWAY with an error, or `lost` was called."""
        return self._reader.stopped

    @property
    def has_room(self) -> bool:
        """Whether the peer allows one more `open_stream` now (RFC 9113, section 5.1.2)."""
        return self._streams.has_room

    @property
    def used_up(self) -> bool:
        """Whether no stream IDs remain."""
        return self._streams.used_up

    # Called by the socket.

    def receive(self, data: bytes | memoryview) -> bool:
        """Process bytes from the socket. A view is no longer referenced when this returns.

        Returns:
            Whether unprocessed frames remain: call again, with or without bytes, after others had
            their turn.
        """
        if self._reader.stopped:
            return False
        try:
            return self._reader.feed(data)
        except ConnectionFailure as failure:
            self._fail(failure.code, failure.message)
            return False

    def take_output(self) -> list[bytes | memoryview]:
        """Return all data to write: one piece, or several if some of it is bulk data."""
        return self._sender.take()

    def hold_data(self) -> None:
        """Hold back DATA: the socket accepts no more. Headers and replies are still sent."""
        self._sender.hold()

    def release_data(self) -> None:
        """Continue sending DATA after `hold_data`."""
        self._sender.release()

    def lost(self, message: str) -> None:
        """Handle that the socket is closed: every stream ends with CANCEL."""
        self._reader.stop()
        self._streams.end_after(0, ErrorCode.CANCEL, message)
        # No reference cycles remain, so it is freed immediately, without the collector.
        self._owner = self._blocks.owner = self._control.owner = NO_OWNER
        self._sender.let_go()

    # Called by the owners of streams.

    def open_stream(self, owner: StreamOwner, block: bytes, end: bool = False) -> Http2Stream:
        """Open a stream with a request's header block; clients only."""
        stream = self._streams.open_local(owner)
        self._sender.headers(stream, block, end)
        return stream

    def send_headers(self, stream: Http2Stream, block: bytes, end: bool = False) -> None:
        """Send a header block; as trailers (`end`) after all waiting data."""
        self._sender.headers(stream, block, end)

    def reset(self, stream: Http2Stream, code: ErrorCode) -> None:
        """End a stream early; its owner receives no more calls. An ended stream is left
        unchanged."""
        self._streams.reset(stream, code)

    def discard_waiting(self, stream: Http2Stream) -> None:
        """Drop the waiting data, so that `send_headers` can end the stream immediately."""
        self._sender.forget(stream)

    # Called by the owner of the connection.

    def ping(self, payload: bytes) -> None:
        """Send a PING to check that the peer is alive.

        Args:
            payload: 8 bytes, which the peer returns.
        """
        self._sender.put(frames.frame(codes.PING, 0, 0, payload))

    def expire_unfinished(self) -> None:
        """End the connection if the peer has been sending a frame or header block for too long.

        To be called periodically: a peer that sends a frame byte by byte is never silent.
        """
        since, limit = self._reader.unfinished_since, self._unfinished_seconds
        if since is not None and self._clock() - since > limit:
            self._fail(ErrorCode.ENHANCE_YOUR_CALM, f"a frame or block took more than {limit:g} s")

    def refuse_new(self, *, last: bool) -> None:
        """Tell the client to open no more streams.

        Args:
            last: whether to reject streams opened since; false in a first call, so that none that
                is in flight is lost (RFC 9113, section 6.8).
        """
        if last:
            self._streams.refuse_new()
        self._sender.put(frames.goaway(self._streams.last_taken, ErrorCode.NO_ERROR, "draining"))

    def _greet(self, limits: ConnectionLimits) -> None:
        """Send the preface, SETTINGS and a larger window."""
        values = [
            (codes.INITIAL_WINDOW_SIZE, limits.stream_window),
            (codes.MAX_FRAME_SIZE_SETTING, limits.max_frame_bytes),
            (codes.MAX_HEADER_LIST_SIZE, limits.max_header_bytes),
        ]
        if self._client:
            self._sender.put(codes.PREFACE)
            values.append((codes.ENABLE_PUSH, 0))
        else:
            values.append((codes.MAX_CONCURRENT_STREAMS, limits.max_streams))
        self._sender.put(frames.settings(values))
        more = limits.connection_window - codes.DEFAULT_WINDOW
        if more > 0:
            self._sender.put(frames.window_update(0, more))

    def _finish(self, stream: Http2Stream) -> None:
        self._streams.finish(stream)

    def _fail(self, code: ErrorCode, message: str) -> None:
        self._reader.stop()
        self._sender.put(frames.goaway(self._streams.last_remote, code, message))
        self._streams.end_after(0, code, message)
        self._owner.on_closed(code, message)
