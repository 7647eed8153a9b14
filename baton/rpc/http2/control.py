"""Frames that control a connection: SETTINGS, PING, GOAWAY, WINDOW_UPDATE (RFC 9113, section 6)."""

from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure, StreamFailure
from baton.rpc.http2.limits import Budgets, ConnectionLimits
from baton.rpc.http2.owner import ConnectionOwner
from baton.rpc.http2.sender import Sender
from baton.rpc.http2.streams import Streams

_PING_BYTES = 8
_SHIFT_COST = 1 / 64
"""Cost of shifting a stream's window, in frames without data ..."""
_MAX_SHIFT_COST = 500.0
"""... and the most that shifting all streams' windows costs."""


class ControlFrames:
    """Handles frames that belong to no stream, or carry nothing for its owner.

    Args:
        owner: owner of the connection.
        streams: streams of the connection.
        sender: sender of the connection.
        budgets: budgets of the peer.
        limits: limits on a SETTINGS frame.
        client: whether this side opens streams.
    """

    def __init__(
        self,
        owner: ConnectionOwner,
        streams: Streams,
        sender: Sender,
        budgets: Budgets,
        limits: ConnectionLimits,
        *,
        client: bool,
    ) -> None:
        self.owner = owner
        self._streams = streams
        self._sender = sender
        self._budgets = budgets
        self._max_settings = limits.max_settings
        self._client = client
        self._settled = False
        """Whether the peer's first SETTINGS frame was handled."""

    def on_settings(self, stream_id: int, flags: int, payload: bytes) -> None:
        """Handle a SETTINGS frame."""
        if stream_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "SETTINGS on a stream")
        if len(payload) % 6 or (flags & codes.ACK and payload):
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        if flags & codes.ACK:
            self._budgets.frames.spend("acknowledged SETTINGS")
            return
        self._budgets.replies.spend("SETTINGS frames")
        values = frames.unpack_settings(payload)
        if len(values) > self._max_settings:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many values of SETTINGS")
        if not self._settled:
            self._settled = True
            self._streams.max_local = codes.MAX_STREAM_ID  # unless the frame says otherwise
        for identifier, value in dict(values).items():
            self._apply_setting(identifier, value)
        self._sender.put(frames.frame(codes.SETTINGS, codes.ACK, 0))
        # After the ACK: until it arrives, gRPC checks the peer's data against the old window.
        self._sender.send_waiting()
        if self._client:
            self.owner.on_settings()

    def _apply_setting(self, identifier: int, value: int) -> None:
        if identifier == codes.ENABLE_PUSH:
            if value > 1 or (self._client and value):
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "ENABLE_PUSH out of range")
        elif identifier == codes.MAX_CONCURRENT_STREAMS:
            self._streams.max_local = value
        elif identifier == codes.INITIAL_WINDOW_SIZE:
            if value > codes.MAX_WINDOW:
                raise ConnectionFailure(
                    ErrorCode.FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE out of range"
                )
            streams = self._streams.open.values()
            cost = min(len(streams) * _SHIFT_COST, _MAX_SHIFT_COST)
            self._budgets.frames.spend("changes of INITIAL_WINDOW_SIZE", cost)
            self._sender.initial_window_changed(value, streams)
        elif identifier == codes.MAX_FRAME_SIZE_SETTING:
            if not codes.MIN_FRAME_SIZE <= value <= codes.MAX_FRAME_SIZE:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "MAX_FRAME_SIZE out of range")
            self._sender.max_frame = value

    def on_ping(self, stream_id: int, flags: int, payload: bytes) -> None:
        """Handle a PING frame."""
        if stream_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "PING on a stream")
        if len(payload) != _PING_BYTES:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "PING is not 8 bytes")
        self._budgets.replies.spend("PING frames")
        if flags & codes.ACK:
            self.owner.on_pong(payload)
        else:
            self._sender.put(frames.frame(codes.PING, codes.ACK, 0, payload))

    def on_goaway(self, stream_id: int, flags: int, payload: bytes) -> None:  # noqa: ARG002
        """Handle a GOAWAY frame."""
        if stream_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "GOAWAY on a stream")
        if len(payload) < 8:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "GOAWAY is too short")
        self._budgets.replies.spend("GOAWAY frames")
        last = int.from_bytes(payload[:4], "big") & codes.MAX_STREAM_ID
        code = codes.error_code(int.from_bytes(payload[4:8], "big"))
        self.owner.on_goaway(last, code, payload[8:264].decode(errors="replace"))
        if self._client:
            self._streams.end_after(last, ErrorCode.REFUSED_STREAM, "the server is going away")

    def on_window_update(self, stream_id: int, flags: int, payload: bytes) -> None:  # noqa: ARG002
        """Handle a WINDOW_UPDATE frame."""
        if len(payload) != 4:
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "WINDOW_UPDATE is not 4 bytes")
        self._budgets.frames.spend("WINDOW_UPDATE frames")
        increment = int.from_bytes(payload, "big") & codes.MAX_WINDOW
        if not stream_id:
            if not increment:
                raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            self._sender.window_opened(None, increment)
            return
        stream = self._streams.known(stream_id, "WINDOW_UPDATE")
        if not increment:
            raise StreamFailure(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        if stream is not None:
            self._sender.window_opened(stream, increment)

    def on_priority(self, stream_id: int, flags: int, payload: bytes) -> None:  # noqa: ARG002
        """Handle a PRIORITY frame, which is deprecated and has no effect."""
        self._budgets.frames.spend("PRIORITY frames")
        if not stream_id:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "PRIORITY of no stream")
        if len(payload) != 5:  # the connection's: the stream may be one that cannot be reset yet
            raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "PRIORITY is not 5 bytes")

    def on_push_promise(self, *_: object) -> None:
        """Reject a PUSH_PROMISE frame: this side disables push."""
        raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE, which is off")

    def on_unknown(self, *_: object) -> None:
        """Ignore a frame of a type that RFC 9113 does not define."""
        self._budgets.frames.spend("frames of unknown types")
