"""h11 as an independent parser of the same bytes, as in a proxy or another server."""

from dataclasses import dataclass
from random import Random

import h11

from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.responses import send_json
from tests.support.http.requests import SMUGGLED, draw_request
from tests.support.http.wire import Wire

_PIECES = (
    *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\x00", b"\x0b", b"\xff"),
    *(b":", b",", b";", b"-", b"+", b"_", b'"', b"#", b"0", b"chunked", b"HTTP/1.0", b"0\r\n\r\n"),
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"content-length: 0\r\n",
    b"Connection: close\r\n",
    b"Upgrade: h2c\r\nConnection: upgrade\r\n",
    b"Expect: 100-continue\r\n",
    b"Host: x\r\n",
)
_TURNS = 60

Read = tuple[str, bytes]
"""Method and body of a request."""


@dataclass(frozen=True, slots=True)
class Heard:
    """What h11 parses."""

    requests: list[Read]
    why: str
    """Why h11 reads no more."""

    @property
    def stricter(self) -> bool:
        """Whether h11 rejects what Baton's server, nginx and others accept.

        These are empty lines and double spaces before or in a request line, and everything after a
        request of HTTP/1.0.
        """
        return "request line" in self.why or self.why == "1.0"


def draw_bytes(random: Random) -> bytes:
    """Return some requests followed by a smuggled one, with a few wrong bytes."""
    data = b""
    while not data:
        drawn = [draw_request(random, at) for at in range(random.choice((1, 2, 3)))]
        short = [one for one in drawn if len(one.body) < 5_000 and not one.framing.expects]
        data = b"".join(one.head + one.body for one in short)
    changed = bytearray(data + SMUGGLED)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(changed))
        if random.random() < 0.6:  # lines delimit the framing
            at = changed.find(b"\r\n", at) + random.choice((0, 1, 2))
        how = random.random()
        if how < 0.5:
            changed[at:at] = random.choice(_PIECES)
        elif how < 0.75:
            del changed[at : at + random.choice((1, 2, 5))]
        else:
            changed[at : at + 1] = random.randbytes(1)
    return bytes(changed)


def read_by_h11(data: bytes) -> Heard:
    """Return how h11 parses bytes, as a server that responds to each request."""
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    reader.receive_data(data)
    requests: list[Read] = []
    method, body, version = "", b"", b""
    try:
        while True:
            event = reader.next_event()
            if isinstance(event, h11.Request):
                method, body, version = event.method.decode(), b"", event.http_version
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                requests.append((method, body))
                reader.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                reader.send(h11.EndOfMessage())
                if reader.our_state is not h11.DONE:
                    return Heard(requests, "1.0" if version == b"1.0" else "closed")
                reader.start_next_cycle()
            else:
                return Heard(requests, "more is awaited")
    except h11.RemoteProtocolError as error:
        return Heard(requests, str(error))


async def read_here(data: bytes) -> list[Read]:
    """Return how Baton's server parses bytes: each complete request."""
    requests: list[Read] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body, more = body + message["body"], message["more_body"]
            if more and connection_of(scope).refusal is not None:
                await send_json(send, [], 400)
                return
        requests.append((scope["method"], body))
        await send_json(send, [])

    wire = Wire(application)
    wire.send(data)
    for _ in range(_TURNS):
        await wire.turn()
    wire.lose()
    return requests
