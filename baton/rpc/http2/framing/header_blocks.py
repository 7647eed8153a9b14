"""Incoming HEADERS and CONTINUATION: decodes header blocks to requests, responses and trailers."""

from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.errors import ConnectionFailure, StreamFailure
from baton.rpc.http2.framing.headers import (
    HeaderReader,
    Headers,
    MalformedHeadersError,
    check_request,
    check_response,
    check_trailers,
    content_length,
)
from baton.rpc.http2.limits import Budgets, ConnectionLimits
from baton.rpc.http2.owner import ConnectionOwner
from baton.rpc.http2.stream import Http2Stream
from baton.rpc.http2.streams import Streams

_PRIORITY_BYTES = 5


class HeaderBlocks:
    """Joins the frames of each header block, decodes it, and passes it to the stream's owner.

    Args:
        owner: owner of the connection, which accepts requests.
        streams: streams of the connection.
        budgets: budgets of the peer.
        limits: limits on a block.
        client: whether to expect responses, or requests.
    """

    def __init__(
        self,
        owner: ConnectionOwner,
        streams: Streams,
        budgets: Budgets,
        limits: ConnectionLimits,
        *,
        client: bool,
    ) -> None:
        self.owner = owner
        self._streams = streams
        self._budgets = budgets
        self._limits = limits
        self._client = client
        self._reader = HeaderReader(limits.max_block_bytes)
        self._block: _PartialHeaderBlock | None = None
        """The unfinished header block, if any."""

    def on_headers(self, stream_id: int, flags: int, payload: bytes) -> None:
        """Handle a HEADERS frame."""
        if not stream_id or (not self._client and stream_id % 2 == 0):
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "HEADERS on no stream of a client")
        if flags & codes.PADDED:
            payload = frames.unpad(payload)
        if flags & codes.PRIORITY_FLAG:
            if len(payload) < _PRIORITY_BYTES:
                raise ConnectionFailure(ErrorCode.FRAME_SIZE_ERROR, "HEADERS is too short")
            payload = payload[_PRIORITY_BYTES:]  # deprecated (RFC 9113, section 5.3)
        end = bool(flags & codes.END_STREAM)
        if flags & codes.END_HEADERS:
            self._take(stream_id, payload, end)
        else:
            self._block = _PartialHeaderBlock(end, payload)
            self._check_size(self._block)

    def on_continuation(self, stream_id: int, flags: int, payload: bytes) -> None:
        """Handle a CONTINUATION frame; the reader accepts it only on the stream of the unfinished
        block."""
        block = self._block
        if block is None:
            raise ConnectionFailure(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        block.data += payload
        block.continuations += 1
        self._check_size(block)
        if flags & codes.END_HEADERS:
            self._block = None
            self._take(stream_id, block.data, block.end)

    def _check_size(self, block: "_PartialHeaderBlock") -> None:
        limits = self._limits
        if len(block.data) > limits.max_block_bytes:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many header bytes")
        if block.continuations > limits.max_continuations:
            raise ConnectionFailure(ErrorCode.ENHANCE_YOUR_CALM, "too many CONTINUATION frames")

    def _take(self, stream_id: int, data: bytes, end: bool) -> None:
        # Decoded in any case: later blocks refer to it.
        fields = self._reader.read(data)
        stream = self._streams.open.get(stream_id)
        if stream is None and not self._streams.admit(stream_id):
            return
        try:
            if stream is None:
                self._take_request(stream_id, fields, end)
            else:
                self._take_more(stream, fields, end)
        except MalformedHeadersError as error:
            raise StreamFailure(stream_id, ErrorCode.PROTOCOL_ERROR, str(error)) from error

    def _take_request(self, stream_id: int, fields: Headers, end: bool) -> None:
        check_request(fields)
        expected = content_length(fields)
        if expected > 0 and end:
            raise MalformedHeadersError("no body, though content-length says so")
        stream = self._streams.open_remote(stream_id, expected, end=end)
        stream.owner = self.owner.on_request(stream, fields, end)

    def _take_more(self, stream: Http2Stream, fields: Headers, end: bool) -> None:
        """Handle the head of a response, or trailers."""
        if stream.remote_closed:
            raise StreamFailure(stream.id, ErrorCode.STREAM_CLOSED, "the peer has ended the stream")
        if stream.got_head:
            check_trailers(fields)
            if not end:
                raise MalformedHeadersError("trailers that do not end the stream")
            if stream.expected_bytes > 0:
                raise MalformedHeadersError("the body is shorter than content-length")
        else:
            check_response(fields)
            if fields[0][1][:1] == b"1":  # an interim response
                if end:
                    raise MalformedHeadersError("an interim response that ends the stream")
                self._budgets.frames.spend("interim responses")
                return
            stream.got_head = True
            stream.expected_bytes = content_length(fields)
        if end:
            self._streams.end_remote(stream)
        stream.owner.on_headers(fields, end)


class _PartialHeaderBlock:
    """A header block whose frames have not all arrived."""

    __slots__ = ("continuations", "data", "end")

    def __init__(self, end: bool, data: bytes) -> None:
        self.end = end
        self.data = data
        self.continuations = 0
