"""One side of an HTTP/2 connection: bytes in, calls to streams' owners and bytes out."""

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
    """The state of a connection. Not thread-safe; everything is synchronous.

    What a peer does wrong never raises here: it ends its stream (RST_STREAM), or the connection
    (GOAWAY, `ConnectionOwner.on_closed`).

    Args:
        owner: hears of the connection.
        client: whether this side opens streams, or takes them.
        wake: called when `take_output` has something where it had nothing.
        limits: what the peer may cost.
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
        """Open ones, by id."""
        # What every message passes, without a call more.
        self.send_data = sender.data
        """`send_data(stream, data, end)`: send data; what the peer's windows do not take yet waits
        in `stream.waiting_bytes`. Large data is not copied: it must not change until it is written.
        """
        self.acknowledge = self._data.acknowledge
        """`acknowledge(stream, size)`: let the peer send as many bytes more: they were used."""
        self.charge = self._reader.charge
        """`charge(cost)`: end the turn of `receive` the sooner for what came of a frame of DATA; a
        cost of 1 stands for 2.5 us."""
        self.read_into = self._data.read_into
        """`read_into()`: return where the next bytes belong, of which `receive` is then given those
        that were read; None: nowhere yet."""
        self._greet(limits)

    @property
    def greeted(self) -> bool:
        """Whether the peer's first SETTINGS came."""
        return self._reader.greeted

    @property
    def closed(self) -> bool:
        """Whether this side sent a GOAWAY with an error, or `lost` was called."""
        return self._reader.stopped

    @property
    def has_room(self) -> bool:
        """Whether the peer lets `open_stream` open one more now (RFC 9113, section 5.1.2)."""
        return self._streams.has_room

    @property
    def used_up(self) -> bool:
        """Whether there are no ids left for streams to open."""
        return self._streams.used_up

    # The socket's.

    def receive(self, data: bytes | memoryview) -> bool:
        """Take bytes from the socket. A view is not referred to any more when this returns.

        Returns:
            Whether frames are left that it has not come to: to be called again, if without bytes,
            once others had their turn.
        """
        if self._reader.stopped:
            return False
        try:
            return self._reader.feed(data)
        except ConnectionFailure as failure:
            self._fail(failure.code, failure.message)
            return False

    def take_output(self) -> list[bytes | memoryview]:
        """Return what to write, all of it: in one piece, or in several where there is bulk data."""
        return self._sender.take()

    def hold_data(self) -> None:
        """Keep DATA back: the socket takes no more. Headers, and what replies, still go."""
        self._sender.hold()

    def release_data(self) -> None:
        """Let DATA go on after `hold_data`."""
        self._sender.release()

    def lost(self, message: str) -> None:
        """Hear that the socket is closed: every stream ends with CANCEL."""
        self._reader.stop()
        self._streams.end_after(0, ErrorCode.CANCEL, message)
        # Nothing refers to each other any more: it is freed at once, and not by the collector.
        self._owner = self._blocks.owner = self._control.owner = NO_OWNER
        self._sender.let_go()

    # The streams' owners'.

    def open_stream(self, owner: StreamOwner, block: bytes, end: bool = False) -> Http2Stream:
        """Open a stream with a request's header block; clients only."""
        stream = self._streams.open_local(owner)
        self._sender.headers(stream, block, end)
        return stream

    def send_headers(self, stream: Http2Stream, block: bytes, end: bool = False) -> None:
        """Send a header block; as trailers (`end`) after all data that waits."""
        self._sender.headers(stream, block, end)

    def reset(self, stream: Http2Stream, code: ErrorCode) -> None:
        """End a stream early; its owner hears nothing more. One that has ended stays as it is."""
        self._streams.reset(stream, code)

    def discard_waiting(self, stream: Http2Stream) -> None:
        """Drop the data that waits; `send_headers` can end the stream at once."""
        self._sender.forget(stream)

    # The connection's owner's.

    def ping(self, payload: bytes) -> None:
        """Ask for a sign of life.

        Args:
            payload: 8 bytes, which come back.
        """
        self._sender.put(frames.frame(codes.PING, 0, 0, payload))

    def expire_unfinished(self) -> None:
        """End the connection where the peer has been sending a frame or header block for too long.

        To be called now and then: a peer that sends it byte by byte is never silent.
        """
        since, limit = self._reader.unfinished_since, self._unfinished_seconds
        if since is not None and self._clock() - since > limit:
            self._fail(ErrorCode.ENHANCE_YOUR_CALM, f"a frame or block took more than {limit:g} s")

    def refuse_new(self, *, last: bool) -> None:
        """Tell the client to open no more streams.

        Args:
            last: whether those that it opened meanwhile are refused; a first call says False, so
                that none is lost that is on its way (RFC 9113, section 6.8).
        """
        if last:
            self._streams.refuse_new()
        self._sender.put(frames.goaway(self._streams.last_taken, ErrorCode.NO_ERROR, "draining"))

    def _greet(self, limits: ConnectionLimits) -> None:
        """Say what comes first: the preface, settings, a larger window."""
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
