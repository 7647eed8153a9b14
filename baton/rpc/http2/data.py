"""Incoming DATA, within the windows that this side opens (RFC 9113, sections 5.2 and 6.1)."""

from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure, StreamFailure
from baton.rpc.http2.limits import Budgets, ConnectionLimits
from baton.rpc.http2.sender import Sender
from baton.rpc.http2.stream import Http2Stream
from baton.rpc.http2.streams import Streams


class DataReceiver:
    """Handles DATA frames and replenishes the peer's windows.

    The connection's window is replenished immediately, a stream's as its owner acknowledges what
    it has used: a slow reader blocks only its own stream.

    Args:
        streams: streams of the connection.
        sender: sender of the connection.
        budgets: budgets of the peer.
        limits: sizes of the windows.
    """

    def __init__(
        self, streams: Streams, sender: Sender, budgets: Budgets, limits: ConnectionLimits
    ) -> None:
        self._streams = streams
        self._open = streams.open
        self._sender = sender
        self._budgets = budgets
        self._stream_window = limits.stream_window
        self._connection_window = limits.connection_window
        self._window = limits.connection_window
        """Bytes that the peer may still send, on all streams."""
        self._unacknowledged = 0
        """Bytes received and not yet returned to the connection's window."""
        self.left = 0
        """Bytes still to be received of a frame that is read in pieces."""
        self._cut: Http2Stream | None = None
        """Stream of that frame; None: its data is discarded."""
        self._cut_end = 0

    def on_data(self, stream_id: int, flags: int, payload: bytes | memoryview) -> None:
        """Handle a DATA frame."""
        length = len(payload)
        data = frames.unpad(bytes(payload)) if flags & codes.PADDED else payload
        end = flags & codes.END_STREAM
        if not data and not end:
            self._budgets.frames.spend("DATA frames without data")
        stream = self._charge(stream_id, length, len(data), end)
        if stream is None:
            return
        if flags & codes.PADDED:
            self.acknowledge(stream, length - len(data))
        if end:
            self._streams.end_remote(stream)
            stream.owner.on_data(data, True)
        elif data:
            stream.owner.on_data(data, False)

    def begin(self, stream_id: int, flags: int, length: int) -> None:
        """Handle the head of a DATA frame without padding; `more` receives the payload as it
        arrives."""
        self.left = length
        self._cut, self._cut_end = None, flags & codes.END_STREAM
        self._cut = stream = self._charge(stream_id, length, length, self._cut_end)
        if stream is not None and self._cut_end:
            stream.remote_closed = True

    def more(self, data: bytes | memoryview) -> None:
        """Handle the next bytes of the payload, if any, at most `left`."""
        self.left -= len(data)
        stream = self._cut
        if not data or stream is None or self._open.get(stream.id) is not stream:
            return  # the stream failed, or was ended on this side
        end = self._cut_end > 0 and not self.left
        if end:
            self._streams.end_remote(stream)
        stream.owner.on_data(data, end)

    def read_into(self) -> memoryview | None:
        """Return the buffer for the next bytes of a frame's data; None: there is none yet."""
        stream = self._cut
        if not self.left or stream is None or self._open.get(stream.id) is not stream:
            return None
        return stream.owner.read_into(self.left)

    def acknowledge(self, stream: Http2Stream, size: int) -> None:
        """Let the peer send that many more bytes on a stream, after they were used."""
        stream.unacknowledged += size
        if stream.unacknowledged * 2 >= self._stream_window and not stream.remote_closed:
            self._sender.put(frames.window_update(stream.id, stream.unacknowledged))
            stream.receive_window += stream.unacknowledged
            stream.unacknowledged = 0

    def _charge(self, stream_id: int, length: int, size: int, end: int) -> Http2Stream | None:
        """Check a frame against windows and content-length; return its stream, None if it has
        ended.

        Args:
            stream_id: stream of the frame.
            length: bytes of the payload with padding, which counts for the windows.
            size: bytes of the data.
            end: not 0: END_STREAM is set.
        """
        stream = self._open.get(stream_id)
        if stream is None:
            self._streams.known(stream_id, "DATA")
            self._take_window(length)
            self._streams.expect_late(stream_id)
            return None
        self._take_window(length)
        if stream.remote_closed:
            raise StreamFailure(stream_id, ErrorCode.STREAM_CLOSED, "the peer has ended the stream")
        stream.receive_window -= length
        if stream.receive_window < 0:
            raise StreamFailure(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "more than the window")
        if not stream.got_head:
            raise StreamFailure(stream_id, ErrorCode.PROTOCOL_ERROR, "DATA before HEADERS")
        if stream.expected_bytes >= 0:
            self._check_length(stream, size, bool(end))
        return stream

    def _take_window(self, length: int) -> None:
        self._window -= length
        if self._window < 0:
            raise ConnectionFailure(ErrorCode.FLOW_CONTROL_ERROR, "more than the window")
        self._unacknowledged += length
        if self._unacknowledged * 2 >= self._connection_window:
            self._sender.put(frames.window_update(0, self._unacknowledged))
            self._window += self._unacknowledged
            self._unacknowledged = 0

    def _check_length(self, stream: Http2Stream, size: int, end: bool) -> None:
        """Check the size of a body against its content-length."""
        stream.expected_bytes -= size
        if stream.expected_bytes < 0 or (end and stream.expected_bytes):
            raise StreamFailure(
                stream.id, ErrorCode.PROTOCOL_ERROR, "the body is not of content-length"
            )
