"""The sending half of a connection: frames, within the peer's windows (RFC 9113, section 5.2)."""

from collections import deque
from collections.abc import Callable, Iterable

from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure, StreamFailure
from baton.rpc.http2.limits import Budgets
from baton.rpc.http2.stream import Http2Stream

_SMALL = 16
"""A DATA frame with fewer bytes earns the peer no frames: opening a window byte by byte is a
flood."""
_EARNED = 4.0
_LARGE = 4096
"""Data of at least this size is not copied to follow the head of its frame."""
_TURN_BYTES = 512 * 1024
"""DATA returned at a time; more waits until that was taken. Otherwise a peer with large windows
could make this side buffer any amount, and a handler would never wait for the peer."""
_pack_head = frames.pack_head


def _wake_nobody() -> None:
    """Do nothing: the connection is lost."""


def _finish_nothing(_: Http2Stream) -> None:
    """Do nothing: the connection is lost, and its streams with it."""


class Sender:
    """Builds frames and queues DATA that must wait, per stream, in order.

    Args:
        wake: called when there is output after there was none.
        finish: called with a stream whose end was sent.
        budgets: budgets of the peer, which may reply to data with frames.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        finish: Callable[[Http2Stream], None],
        budgets: Budgets,
    ) -> None:
        self.max_frame = codes.MIN_FRAME_SIZE
        self.initial_window = codes.DEFAULT_WINDOW
        self._wake = wake
        self._finish = finish
        self._frame_budget = budgets.frames
        self._reply_budget = budgets.replies
        self._out: list[bytes | memoryview] = []
        self._bulky = False
        """Whether `_out` has data that must not be copied."""
        self._turn_bytes = _TURN_BYTES
        """Bytes of DATA that may still be added to `_out`."""
        self._window = codes.DEFAULT_WINDOW
        self._ready: dict[Http2Stream, None] = {}
        """Streams with waiting data whose own window is open, the longest waiting first. Streams
        whose window is closed are added again when it opens."""
        self._held = False

    def take(self) -> list[bytes | memoryview]:
        """Return everything to be written now: one piece, or many if data is bulky."""
        out, self._out = self._out, []
        bulky, self._bulky = self._bulky, False
        if self._turn_bytes < _TURN_BYTES:  # grpc-go uses it to measure the round trip
            self._reply_budget.earn(1)
        self._turn_bytes = _TURN_BYTES
        if self._ready:
            self._drain()
        if bulky or len(out) < 2:
            return out
        return [b"".join(out)]

    def let_go(self) -> None:
        """Drop the callbacks: data that is put afterwards is never written."""
        self._wake = _wake_nobody
        self._finish = _finish_nothing

    def put(self, data: bytes | memoryview) -> None:
        """Write whole frames after those written before."""
        if not self._out:
            self._wake()
        self._out.append(data)

    def hold(self) -> None:
        """Hold back DATA: the socket accepts no more."""
        self._held = True

    def release(self) -> None:
        """Continue sending DATA after `hold`."""
        self._held = False
        self._drain()

    def headers(self, stream: Http2Stream, block: bytes, end: bool) -> None:
        """Send a header block; one that ends the stream follows the waiting data."""
        if end and stream.waiting:
            stream.trailers = block
            return
        stream.answered = True
        self.put(frames.header_frames(stream.id, block, end, self.max_frame))
        if end:
            self._end(stream)

    def data(self, stream: Http2Stream, data: bytes | memoryview, end: bool = False) -> None:
        """Send data as far as the windows allow; the rest waits.

        Large data is not copied: it must not change until it is written.
        """
        size = len(data)
        if not stream.waiting and (
            not size  # needs no window, even on a stream whose window is negative
            or (
                size <= self._window
                and size <= stream.send_window
                and size <= self.max_frame
                and self._turn_bytes > 0
                and not self._held
            )
        ):
            self._put_data(stream, data, end)
            if end:
                self._end(stream)
            return
        if end:
            stream.trailers = b""
        if not size:
            return
        if stream.waiting is None:
            stream.waiting = deque()
        # A view, so that the rest after a frame is split off without copying.
        stream.waiting.append(memoryview(data))
        stream.waiting_bytes += size
        stream.above_low_water = True
        self.reconsider(stream)
        self._drain()

    def forget(self, stream: Http2Stream) -> None:
        """Drop the waiting data of an ended stream."""
        self._ready.pop(stream, None)
        stream.waiting = None
        stream.waiting_bytes = 0

    def window_opened(self, stream: Http2Stream | None, increment: int) -> None:
        """Handle a WINDOW_UPDATE, of the connection if `stream` is None.

        Raises:
            ConnectionFailure: the connection's window exceeds the maximum.
            StreamFailure: the stream's window exceeds the maximum.
        """
        if stream is None:
            self._window += increment
            if self._window > codes.MAX_WINDOW:
                raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "the window is too large")
        else:
            stream.send_window += increment
            if stream.send_window > codes.MAX_WINDOW:
                raise StreamFailure(
                    stream.id, ErrorCode.FLOW_CONTROL_ERROR, "the window is too large"
                )
            self.reconsider(stream)
        self._drain()

    def initial_window_changed(self, value: int, streams: Iterable[Http2Stream]) -> None:
        """Apply SETTINGS_INITIAL_WINDOW_SIZE, which shifts the window of each open stream.

        Data that this allows is sent by `send_waiting`, after the setting is acknowledged.

        Raises:
            ConnectionFailure: a window exceeds the maximum.
        """
        change = value - self.initial_window
        self.initial_window = value
        for stream in streams:
            stream.send_window += change
            if stream.send_window > codes.MAX_WINDOW:
                raise ConnectionFailure(
                    ErrorCode.FLOW_CONTROL_ERROR, "a stream's window is too large"
                )
            self.reconsider(stream)

    def send_waiting(self) -> None:
        """Send waiting data, as far as the windows allow."""
        self._drain()

    def reconsider(self, stream: Http2Stream) -> None:
        """Queue a stream again after its data or window changed."""
        if stream.waiting and stream.send_window > 0:
            self._ready[stream] = None
        else:
            self._ready.pop(stream, None)

    def _drain(self) -> None:
        """Send waiting data, a frame of each stream in turn, as far as the windows allow."""
        while self._ready and self._window > 0 and self._turn_bytes > 0 and not self._held:
            stream = next(iter(self._ready))
            del self._ready[stream]
            self._send_waiting(stream)
            if stream.waiting:
                self.reconsider(stream)
            elif stream.trailers is not None:
                self._end(stream)
            if stream.above_low_water and stream.waiting_bytes <= stream.low_water:
                stream.above_low_water = stream.waiting_bytes > 0
                stream.owner.on_drained()

    def _send_waiting(self, stream: Http2Stream) -> None:
        """Send one frame of waiting data, and the end or trailers after the last of it."""
        waiting = stream.waiting
        assert waiting
        size = min(len(waiting[0]), self._window, stream.send_window, self.max_frame)
        piece = waiting.popleft()
        if size < len(piece):
            waiting.appendleft(piece[size:])
            piece = piece[:size]
        stream.waiting_bytes -= size
        self._put_data(stream, piece, not waiting and stream.trailers == b"")
        if not waiting and stream.trailers:
            self.put(frames.header_frames(stream.id, stream.trailers, True, self.max_frame))

    def _end(self, stream: Http2Stream) -> None:
        stream.local_closed = True
        self._finish(stream)

    def _put_data(self, stream: Http2Stream, data: bytes | memoryview, end: bool) -> None:
        """Write a DATA frame that the windows allow."""
        size = len(data)
        stream.send_window -= size
        self._window -= size
        self._turn_bytes -= size
        head = _pack_head(size >> 16, size & 0xFFFF, codes.DATA, end, stream.id)
        if size < _LARGE:
            self.put(head + data)
        else:
            self.put(head)
            self.put(data)
            self._bulky = True
        if size >= _SMALL:
            self._frame_budget.earn(_EARNED)
