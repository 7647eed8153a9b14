"""A client and a server without sockets: what one sends, the other receives."""

from typing import Any

from baton.rpc.http2.connection import Http2Connection
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers, encode
from baton.rpc.http2.limits import ConnectionLimits
from baton.rpc.http2.stream import Http2Stream

USUAL = ConnectionLimits()
REQUEST = encode(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a")))
RESPONSE = encode(((b":status", b"200"),))
TRAILERS = encode(((b"grpc-status", b"0"),))


class Owner:
    """Keeps what comes on a stream."""

    def __init__(self) -> None:
        self.headers: list[Headers] = []
        self.data = bytearray()
        self.ended = False
        self.reset: ErrorCode | None = None
        self.drained = 0
        self.stream: Any = None

    def on_headers(self, headers: Headers, end: bool) -> None:
        self.headers.append(headers)
        self.ended = end

    def on_data(self, data: bytes | memoryview, end: bool) -> None:
        self.data += data
        self.ended = end

    def read_into(self, size: int) -> memoryview | None:
        return None

    def on_reset(self, code: ErrorCode, message: str) -> None:
        self.reset = code

    def on_drained(self) -> None:
        self.drained += 1


class Side:
    """One end."""

    def __init__(self, client: bool, limits: ConnectionLimits = USUAL) -> None:
        self.now = 0.0
        self.told = 0
        """Times that the server said its settings."""
        self.closed: ErrorCode | None = None
        self.goaways: list[tuple[int, ErrorCode]] = []
        self.pongs: list[bytes] = []
        self.owners: list[Owner] = []
        self.http2 = Http2Connection(
            self, client=client, wake=lambda: None, limits=limits, clock=lambda: self.now
        )

    def on_request(self, stream: Http2Stream, headers: Headers, end: bool) -> Owner:
        owner = Owner()
        owner.stream = stream
        owner.on_headers(headers, end)
        self.owners.append(owner)
        return owner

    def on_settings(self) -> None:
        self.told += 1

    def on_pong(self, payload: bytes) -> None:
        self.pongs.append(payload)

    def on_goaway(self, last_stream_id: int, code: ErrorCode, message: str) -> None:
        self.goaways.append((last_stream_id, code))

    def on_closed(self, code: ErrorCode, message: str) -> None:
        self.closed = code

    def take_output(self) -> bytes:
        return b"".join(self.http2.take_output())

    def open(self, end: bool = False) -> Owner:
        """Open a stream; for clients."""
        owner = Owner()
        owner.stream = self.http2.open_stream(owner, REQUEST, end)
        return owner


def settle(client: Side, server: Side) -> None:
    """Pass bytes to and fro until neither side has any."""
    while True:
        to_server, to_client = client.take_output(), server.take_output()
        if not to_server and not to_client:
            return
        give(server, to_server)
        give(client, to_client)


def give(side: Side, data: bytes) -> None:
    """Have a side take bytes to their end."""
    while side.http2.receive(data):
        data = b""


def pair(client: ConnectionLimits = USUAL, server: ConnectionLimits = USUAL) -> tuple[Side, Side]:
    """Return two ends that have exchanged settings."""
    ends = Side(True, client), Side(False, server)
    settle(*ends)
    return ends
