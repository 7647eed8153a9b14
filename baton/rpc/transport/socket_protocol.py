"""HTTP/2 on a socket: the common part of server and client connections."""

import asyncio
import ssl
import threading

from baton.rpc.http2.connection import Http2Connection
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers
from baton.rpc.http2.limits import ConnectionLimits
from baton.rpc.http2.stream import Http2Stream, StreamOwner
from baton.rpc.timing.loop_watch import loop_watch

BUFFER_BYTES = 64 * 1024
"""Bytes that may wait for a peer before senders are paused."""
_MAX_OUTPUT_BYTES = 4 * 1024 * 1024
"""Bytes written and not read: only a peer that requests replies and reads none exceeds this."""
_PING = b"keepaliv"
GREETING_SECONDS = 10.0
"""Time for the peer to send its preface and SETTINGS, the same as for a TLS handshake."""
_LOOK_SECONDS = 10.0
"""The longest time between two checks of a peer's unfinished frames."""
_LAST_LOOK_SECONDS = 0.05
_READ_BYTES = 256 * 1024
"""Bytes to read from a socket at a time while the size of incoming data is unknown."""
_COPIED_BYTES = 16 * 1024
"""Up to this size, copying the data of a read is cheaper than splitting it into views."""
_IN_PLACE_BYTES = 32 * 1024
"""Smaller reads are not worth reading in place."""


class _ReadBuffer(threading.local):
    """The buffer that a thread's event loop reads into. The loop reads one socket at a time, and
    nothing refers to the data any more at the next read."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_READ_BYTES))


_read_buffer = _ReadBuffer()


class SocketProtocol(asyncio.BufferedProtocol):
    """Feeds a connection from its socket, and writes its output once per iteration of the loop.

    A silent peer is pinged, and disconnected if it does not reply. Silence counts only while this
    process itself runs.

    Args:
        client: whether this side opens streams.
        limits: limits on what the peer may use.
        keepalive_seconds: silence after which a peer is pinged.
        keepalive_timeout_seconds: time after the ping within which the peer must send something.
    """

    def __init__(
        self,
        *,
        client: bool,
        limits: ConnectionLimits,
        keepalive_seconds: float,
        keepalive_timeout_seconds: float,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.peer = ""
        """The other side's address, as `ipv4:127.0.0.1:40000`."""
        self._transport: asyncio.Transport
        """Transport of the socket, or of TLS once that is established."""
        self._begun = False
        """Whether a socket exists ..."""
        self._connected = False
        """... and HTTP/2 may be used on it."""
        self._unwanted = False
        """Whether it is to be closed, possibly before it was established."""
        self._keepalive_seconds = keepalive_seconds
        self._keepalive_timeout_seconds = keepalive_timeout_seconds
        self._made_at = self._received_at = self.loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._pinged_at: float | None = None
        """When a silent peer was pinged; None: it has sent data since."""
        self._doomed = False
        """Whether it has not replied in time; its socket is checked once more."""
        self._watch = loop_watch()
        self._lost_seconds = self._watch.lost_seconds
        self._read_buffer = self._read_target = _read_buffer.view
        self._reading_on = False
        """Whether received frames remain; nothing more is read before they are processed."""
        self._look_seconds = min(_LOOK_SECONDS, limits.unfinished_seconds)
        self._greeting_seconds = min(
            keepalive_seconds + keepalive_timeout_seconds, GREETING_SECONDS
        )
        self.http2 = Http2Connection(
            self, client=client, wake=self._wake, limits=limits, clock=self.loop.time
        )

    # Called by the socket.

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._take(transport)
        self._connected = True
        self._made_at = self._received_at = self.loop.time()
        if self._unwanted:
            transport.abort()
        transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self._look_within(self._keepalive_seconds)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return the read buffer: directly that of a long message, once its size is known."""
        target = self.http2.read_into()
        if target is None or len(target) < _IN_PLACE_BYTES:
            target = self._read_buffer
        self._read_target = target
        return target

    def buffer_updated(self, nbytes: int) -> None:
        """Process the bytes read."""
        self._received_at = self.loop.time()
        self._pinged_at = None
        data, self._read_target = self._read_target[:nbytes], self._read_buffer
        left = self.http2.receive(bytes(data) if nbytes <= _COPIED_BYTES else data)
        if left and not self._reading_on:
            self._reading_on = True
            if self._connected:
                self._transport.pause_reading()
            self.loop.call_soon(self._read_on)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        why = f": {exc}" if isinstance(exc, ssl.SSLError) else ""  # all else means the same
        self.http2.lost(f"the connection is gone{why}")

    def pause_writing(self) -> None:
        self.http2.hold_data()

    def resume_writing(self) -> None:
        self.http2.release_data()

    # Called by the owner.

    def begin_tls(self, transport: asyncio.Transport) -> None:
        """Record the socket on which TLS is still to be established."""
        self._take(transport)

    def close(self) -> None:
        """Write the remaining output, and close."""
        # Once only: closed again, asyncio's TLS of Python 3.11.2 raises when it is aborted.
        if self._connected and not self._transport.is_closing():
            self._flush()
            self._transport.close()
        self._unwanted = True

    def abort(self) -> None:
        """Close without writing the remaining output."""
        if self._begun:
            self._transport.abort()
        self._unwanted = True

    # Called by HTTP/2.

    def on_request(self, stream: Http2Stream, headers: Headers, end: bool) -> StreamOwner:
        """Return the owner of a stream that the client opened; servers only."""
        raise NotImplementedError

    def on_settings(self) -> None:
        """Do nothing; overridden by clients that have more to open."""

    def on_pong(self, payload: bytes) -> None:
        """Do nothing: only its arrival counts."""

    def on_goaway(self, last_stream_id: int, code: ErrorCode, message: str) -> None:
        """Do nothing: a server opens no streams, and its client closes the connection."""

    def on_closed(self, code: ErrorCode, message: str) -> None:  # noqa: ARG002 - for who looks on
        """Close: the peer violated the protocol, and was informed."""
        self.loop.call_soon(self.close)

    def _take(self, transport: asyncio.Transport) -> None:
        self._transport, self._begun = transport, True
        address = transport.get_extra_info("peername") or ("", 0)
        kind = "ipv6:[%s]:%s" if ":" in address[0] else "ipv4:%s:%s"
        self.peer = kind % address[:2]

    def _wake(self) -> None:
        if self._connected:  # output from before that is written by `connection_made`
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        pieces = self.http2.take_output()
        if pieces and not self._transport.is_closing():
            if len(pieces) == 1:
                self._transport.write(pieces[0])
            else:
                self._transport.writelines(pieces)
            if self._transport.get_write_buffer_size() > _MAX_OUTPUT_BYTES:
                self._transport.abort()

    def _read_on(self) -> None:
        if self.http2.receive(b""):
            self.loop.call_soon(self._read_on)
        else:
            self._reading_on = False
            if self._connected and not self._transport.is_closing():
                self._transport.resume_reading()

    def _look(self) -> None:
        """Ping a silent peer; disconnect one that stays silent, or never finishes a frame."""
        now = self.loop.time()
        self._forgive_pause(now)
        if not self.http2.greeted and now - self._made_at >= self._greeting_seconds:
            self._transport.abort()
            return
        self.http2.expire_unfinished()
        if self._pinged_at is not None:
            wait = self._pinged_at + self._keepalive_timeout_seconds - now
            if wait <= 0:
                if self._doomed:
                    self._transport.abort()
                    return
                # Received data may not have been read yet: a timer may be called before sockets.
                self._doomed, wait = True, _LAST_LOOK_SECONDS
        else:
            wait = self._received_at + self._keepalive_seconds - now
            if wait <= 0:
                self._pinged_at, self._doomed = now, False
                if self.http2.greeted:
                    self.http2.ping(_PING)
                # Once it has answered, it is pinged again as soon as it is due.
                wait = min(self._keepalive_seconds, self._keepalive_timeout_seconds)
        self._look_within(wait)

    def _forgive_pause(self, now: float) -> None:
        """Exclude the time in which this process did not run from the peer's silence."""
        lost = self._watch.lost_seconds
        pause, self._lost_seconds = lost - self._lost_seconds, lost
        self._made_at = min(now, self._made_at + pause)
        self._received_at = min(now, self._received_at + pause)
        if self._pinged_at is not None:
            self._pinged_at = min(now, self._pinged_at + pause)

    def _look_within(self, seconds: float) -> None:
        seconds = min(seconds, self._look_seconds)
        if not self.http2.greeted:
            left = self._made_at + self._greeting_seconds - self.loop.time()
            seconds = min(seconds, max(left, _LAST_LOOK_SECONDS))
        self._timer = self.loop.call_later(seconds, self._look)
