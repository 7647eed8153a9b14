"""One input on an `Http2Connection` without sockets, whole and in pieces."""

from dataclasses import dataclass
from random import Random
from time import process_time

from baton.rpc.http2.connection import Http2Connection
from baton.rpc.http2.framing import codes, frames
from baton.rpc.http2.framing.codes import ErrorCode
from baton.rpc.http2.framing.headers import Headers, encode
from baton.rpc.http2.limits import ConnectionLimits
from baton.rpc.http2.stream import Http2Stream
from bench.rpc.fuzz.inputs import Inputs, pieces

LIMITS = ConnectionLimits(max_streams=20, frame_burst=200, reply_burst=50, reset_burst=30)
_RESPONSE = encode(((b":status", b"200"), (b"content-type", b"application/grpc")))
_REQUEST = encode(((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/a")))
_TRAILERS = encode(((b"grpc-status", b"0"),))
_MAX_OUTPUT = 64 << 20
_USED_BYTES = 100
"""Bytes of data after which a stream's owner does something."""


class Broken(Exception):  # noqa: N818 - what the fuzzer looks for
    """An invariant was violated."""


class _Side:
    """The owner of a connection, which reacts to received data."""

    def __init__(self, draw: Random, client: bool) -> None:
        self.draw = draw
        self.closed = 0
        self.http2 = Http2Connection(
            self, client=client, wake=self._wake, limits=LIMITS, clock=lambda: 0.0
        )
        self.woken = False
        if client:
            for _ in range(3):
                owner = _Owner(self)
                owner.stream = self.http2.open_stream(owner, _REQUEST)
                owner.done = draw.random() < 0.5
                self.http2.send_data(owner.stream, bytes(10), end=owner.done)

    def _wake(self) -> None:
        self.woken = True

    def on_request(self, stream: Http2Stream, headers: Headers, end: bool) -> "_Owner":  # noqa: ARG002
        owner = _Owner(self)
        owner.stream, stream.owner = stream, owner
        owner.act()
        return owner

    def on_settings(self) -> None: ...

    def on_pong(self, payload: bytes) -> None:
        if len(payload) != 8:
            raise Broken("a PING of another size came through")

    def on_goaway(self, last_stream_id: int, code: ErrorCode, message: str) -> None: ...

    def on_closed(self, code: ErrorCode, message: str) -> None:  # noqa: ARG002
        self.closed += 1


class _Owner:
    stream: Http2Stream

    def __init__(self, side: _Side) -> None:
        self._side = side
        self._head = self._over = False
        self.done = False
        """Whether this side sends no more."""
        self._unused = 0
        self._draw = Random(side.draw.random())
        """Its own source: notifications of discarded data must not change other choices."""

    def on_headers(self, headers: Headers, end: bool) -> None:  # noqa: ARG002
        self._hear()

    def on_data(self, data: bytes | memoryview, end: bool) -> None:
        self._hear()
        # The same for any split into pieces.
        http2 = self._side.http2
        self._unused += len(data)
        while self._unused >= _USED_BYTES and self.stream.id in http2.streams:
            self._unused -= _USED_BYTES
            if self._draw.random() < 0.8:
                http2.acknowledge(self.stream, _USED_BYTES)
            self.act()
        if end and self.stream.id in http2.streams:
            self.act()

    def read_into(self, size: int) -> memoryview | None:  # noqa: ARG002
        return None

    def on_reset(self, code: ErrorCode, message: str) -> None:  # noqa: ARG002
        self._hear()
        self._over = self.done = True

    def on_drained(self) -> None:
        if self._over:
            raise Broken("on_drained after the end")
        self.act()

    def _hear(self) -> None:
        if self._over:
            raise Broken("a stream's owner hears more after its end")

    def act(self) -> None:
        """Respond, partly respond, or end early."""
        http2, draw = self._side.http2, self._draw
        if self.done:
            return
        if not self._head:
            self._head = True
            if self._side.http2._client is False:
                http2.send_headers(self.stream, _RESPONSE)
        how = draw.random()
        if how < 0.6:
            http2.send_data(self.stream, bytes(draw.choice((1, 10, 100, 20_000))))
        elif how < 0.7:
            self.done = True
            http2.send_headers(self.stream, _TRAILERS, end=True)
        elif how < 0.75:
            self.done = self._over = True
            http2.reset(self.stream, ErrorCode.CANCEL)
        elif how < 0.8:
            http2.discard_waiting(self.stream)


@dataclass(frozen=True, slots=True)
class Borne:
    """The result of an input."""

    size: int
    """Number of bytes."""
    held_seconds: float
    """CPU of the longest turn, for which a loop would be blocked."""


def run(seed: int) -> Borne:
    """Process an input with a connection, whole and in pieces.

    Raises:
        Broken: an invariant was violated.
        Exception: an exception that the connection let through.
    """
    draw = Random(seed)
    client = draw.random() < 0.3
    data = Inputs(draw, not client).make()
    owners = draw.randrange(1 << 30)
    whole, held = _feed(owners, client, [data])
    parts, _ = _feed(owners, client, pieces(draw, data))
    if whole != parts:
        raise Broken("pieces come to something else than the whole")
    return Borne(len(data), held)


def _feed(owners: int, client: bool, data: list[bytes]) -> tuple[bytes, float]:
    """Return the connection's output, and its longest turn."""
    side = _Side(Random(owners), client)
    out = []
    longest = 0.0
    for piece in data:
        more = True
        while more:
            began = process_time()
            more = side.http2.receive(piece)
            longest = max(longest, process_time() - began)
            piece = b""
        if len(side.http2.streams) > LIMITS.max_streams:
            raise Broken("more streams than the limit")
    while True:
        side.woken = False
        out.append(b"".join(side.http2.take_output()))
        if not side.woken:
            break
        if len(out) > 10_000:
            raise Broken("output without end")
    if side.closed > 1 or (side.closed and not side.http2.closed):
        raise Broken("on_closed is not once")
    sent = b"".join(out)
    _check_output(sent, client)
    side.http2.lost("over")
    if side.http2.streams:
        raise Broken("streams outlive their connection")
    return sent, longest


def _check_output(sent: bytes, client: bool) -> None:
    """Fail unless the output is complete frames that a peer may receive."""
    at = len(codes.PREFACE) if client else 0
    ended: set[int] = set()
    if len(sent) > _MAX_OUTPUT:
        raise Broken(f"{len(sent)} bytes of output")
    failed = False
    while at < len(sent):
        high, low, kind, flags, stream_id = frames.unpack_head(sent, at)
        at += frames.HEAD_BYTES + (high << 16 | low)
        if failed:
            raise Broken("a frame after GOAWAY with an error")
        if kind == codes.GOAWAY:
            failed = int.from_bytes(sent[at - (high << 16 | low) + 4 :][:4]) != 0
        if kind in (codes.DATA, codes.HEADERS):
            if stream_id in ended:
                raise Broken("DATA or HEADERS on a stream that this side has ended")
            if flags & codes.END_STREAM:
                ended.add(stream_id)
        if kind == codes.RST_STREAM:
            ended.add(stream_id)
    if at != len(sent):
        raise Broken("the last frame is not whole")
