"""Owner of a connection: receives the events that concern all of it."""

from typing import Protocol

from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers
from baton.rpc.http2.stream import NOBODY, Http2Stream, StreamOwner


class ConnectionOwner(Protocol):
    """Receives events of the whole connection, synchronously, from its reader."""

    def on_request(self, stream: Http2Stream, headers: Headers, end: bool) -> StreamOwner:
        """Return the owner of a stream that the client opened; servers only."""
        ...

    def on_settings(self) -> None:
        """Handle the server's limits: `Http2Connection.has_room` may have changed; clients only."""
        ...

    def on_pong(self, payload: bytes) -> None:
        """Handle the reply to a `ping`."""
        ...

    def on_goaway(self, last_stream_id: int, code: ErrorCode, message: str) -> None:
        """Handle that the peer accepts no more streams; those after the last one were not
        processed."""
        ...

    def on_closed(self, code: ErrorCode, message: str) -> None:
        """Handle that this side ended the connection: write what is left, then close the socket."""
        ...


class _NoOwner:
    """Owner of a connection that is lost."""

    def on_request(self, stream: Http2Stream, headers: Headers, end: bool) -> StreamOwner:  # noqa: ARG002
        return NOBODY

    def on_settings(self) -> None: ...
    def on_pong(self, payload: bytes) -> None: ...
    def on_goaway(self, last_stream_id: int, code: ErrorCode, message: str) -> None: ...
    def on_closed(self, code: ErrorCode, message: str) -> None: ...


NO_OWNER: ConnectionOwner = _NoOwner()
