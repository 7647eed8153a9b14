"""The response of one call: the head, messages, and the final status."""

import asyncio

from baton.rpc.http2.connection import Http2Connection
from baton.rpc.http2.framing.headers import Headers, encode
from baton.rpc.http2.stream import Http2Stream
from baton.rpc.transport.outbox import Outbox
from baton.rpc.wire.compression import ACCEPTED
from baton.rpc.wire.messages import Parts, frame_message
from baton.rpc.wire.metadata import Metadata, metadata_fields

_HEAD: Headers = [(b":status", b"200"), (b"content-type", b"application/grpc")]
_HEAD_BLOCK = encode([*_HEAD, (b"grpc-accept-encoding", ACCEPTED)])


class CallResponse:
    """Sends the response of one call, in order.

    Args:
        loop: loop of the server.
        http2: HTTP/2 connection of the call.
        stream: stream of the call.
    """

    __slots__ = ("_http2", "_stream", "begun", "ended", "outbox")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, http2: Http2Connection, stream: Http2Stream
    ) -> None:
        self.begun = False
        """Whether the head was sent."""
        self.ended = False
        """Whether the status was sent, or is no longer needed."""
        self.outbox = Outbox(loop)
        self.outbox.open(http2, stream)
        self._http2 = http2
        self._stream = stream

    def send_head(self, metadata: Metadata = ()) -> None:
        """Send the head with metadata, immediately; later calls do nothing."""
        if self.begun or self.ended:
            return
        self.begun = True
        block = _HEAD_BLOCK
        if metadata:
            block += encode(metadata_fields(metadata))
        self._http2.send_headers(self._stream, block)

    def send(self, message: bytes | Parts) -> bool:
        """Send a message; return False if the client does not read, and much data waits for it."""
        if self.ended:
            return True
        if not self.begun:
            self.send_head()
        return self.outbox.send(frame_message(message))

    def discard(self) -> None:
        """Drop the waiting data: the client does not read it."""
        if not self.ended:
            self._http2.discard_waiting(self._stream)

    def end(self, trailers: bytes) -> bool:
        """Send the status, a header block, after the waiting data; return whether everything was
        sent."""
        self.ended = True
        block = trailers if self.begun else _HEAD_BLOCK + trailers
        self._http2.send_headers(self._stream, block, end=True)
        if not self._stream.waiting_bytes:
            return True
        self.outbox.on_pause = None
        self.outbox.pause()  # a client that does not read the rest is disconnected as well
        return False

    def close(self) -> None:
        """Send nothing more."""
        self.ended = True
        self.outbox.stop_timer()
