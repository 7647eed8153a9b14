"""Request heads of real clients, byte by byte, and heads of no known client.

The heads are those of JDK 17 (`java.net.http.HttpClient`, which offers h2c with each request in
plain text), of nginx 1.22 and HAProxy 2.6 towards the server behind them, and of curl 7.88.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Fields = list[tuple[bytes, bytes]]

_JAVA_SETTINGS = b"AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA"
_OFFERS = (
    (b"h2c", b"Upgrade, HTTP2-Settings"),
    (b"h2c", b"HTTP2-Settings , upgrade"),
    (b"websocket", b"Upgrade"),
    (b"websocket", b"keep-alive, Upgrade"),
    (b"TLS/1.2", b"Upgrade"),
    (b"TLS/1.3, HTTP/1.1", b"upgrade"),
    (b"foo/2, h2c", b"UPGRADE"),
)
"""Values of Upgrade and Connection."""


@dataclass(frozen=True, slots=True)
class Framing:
    """How a request's body is framed, and whether the connection stays open."""

    version: bytes
    """`1.1` or `1.0`."""
    chunked: bool
    length: int | None
    """The value of content-length; None: no such field."""
    last: bool
    """Whether the client wants no more responses on the connection."""
    expects: bool
    """Whether the client waits for 100 (Continue)."""

    def fields(self) -> Fields:
        """Return the length or coding, and the expectation."""
        fields: Fields = []
        if self.chunked:
            fields.append((b"Transfer-Encoding", b"chunked"))
        elif self.length is not None:
            fields.append((b"Content-Length", b"%d" % self.length))
        if self.expects:
            fields.append((b"Expect", b"100-continue"))
        return fields


Client = Callable[[Random, bytes, bytes, Framing], bytes]
"""Returns the head of a request for a method, a target and a framing."""


def java(_: Random, method: bytes, target: bytes, framing: Framing) -> bytes:
    """Fields that a program sets, such as Content-Type, follow those of the client."""
    head = b"%b %b HTTP/1.1\r\nConnection: Upgrade, HTTP2-Settings\r\n" % (method, target)
    if framing.length is not None:
        head += b"Content-Length: %d\r\n" % framing.length
    if framing.expects:
        head += b"Expect: 100-Continue\r\n"
    head += b"Host: 127.0.0.1:8000\r\nHTTP2-Settings: %b\r\n" % _JAVA_SETTINGS
    if framing.chunked:
        head += b"Transfer-encoding: chunked\r\n"
    head += b"Upgrade: h2c\r\nUser-Agent: Java-http-client/17.0.15\r\n"
    return head + b"Content-Type: application/json\r\n\r\n"


def nginx(random: Random, method: bytes, target: bytes, framing: Framing) -> bytes:
    """nginx as a proxy.

    With its defaults it uses 1.0 and closes. With `proxy_http_version 1.1` it keeps connections
    alive, and forwards offers if `proxy_set_header` says so.
    """
    head = b"%b %b HTTP/%b\r\n" % (method, target, framing.version)
    if framing.last:
        head += b"Host: baton\r\nConnection: close\r\n"
    elif framing.version == b"1.0":
        head += b"Host: baton\r\nConnection: keep-alive\r\n"
    elif random.random() < 0.5:
        head += b"Upgrade: h2c\r\nConnection: upgrade\r\nHost: baton\r\n"
    else:
        head += b"Host: baton\r\n"
    head += _lines(framing.fields())
    return (
        head + b"User-Agent: curl/7.88.1\r\nAccept: */*\r\ncontent-type: application/json\r\n\r\n"
    )


def haproxy(random: Random, method: bytes, target: bytes, framing: Framing) -> bytes:
    """Names are in lower case; offers of its clients are forwarded, except offers of h2c."""
    head = b"%b %b HTTP/1.1\r\nhost: baton\r\n" % (method, target)
    head += b"user-agent: curl/7.88.1\r\naccept: */*\r\n"
    fields = _lines([(name.lower(), value) for name, value in framing.fields()])
    if framing.chunked:
        head += fields
    if framing.last:
        head += b"connection: close\r\n"
    elif random.random() < 0.5:
        head += b"connection: Upgrade\r\nupgrade: websocket\r\n"
    head += b"content-type: application/json\r\n"
    if not framing.chunked:
        head += fields
    return head + b"x-forwarded-for: 127.0.0.1\r\n\r\n"


def curl(random: Random, method: bytes, target: bytes, framing: Framing) -> bytes:
    """With `--http2` it offers h2c."""
    head = b"%b %b HTTP/%b\r\nHost: 127.0.0.1:8000\r\n" % (method, target, framing.version)
    head += b"User-Agent: curl/7.88.1\r\nAccept: */*\r\n"
    if framing.last:
        head += b"Connection: close\r\n"
    elif framing.version == b"1.0":
        head += b"Connection: Keep-Alive\r\n"
    elif random.random() < 0.5:
        head += b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        head += b"HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n"
    return head + b"Content-Type: application/json\r\n" + _lines(framing.fields()) + b"\r\n"


def any_client(random: Random, method: bytes, target: bytes, framing: Framing) -> bytes:
    """Fields in any order, any case, with any blanks that RFC 9112 allows, and any offer."""
    fields: Fields = [*framing.fields()]
    if framing.version == b"1.1" or random.random() < 0.5:
        fields.append((b"Host", b"x"))
    tokens = [b"close"] if framing.last else []
    if framing.version == b"1.0" and not framing.last:
        tokens.append(b"keep-alive")
    elif framing.version == b"1.0" and random.random() < 0.5:
        tokens.clear()  # the connection closes by itself
    if random.random() < 0.4:
        upgrade, connection = random.choice(_OFFERS)
        if framing.last:
            connection = connection.removeprefix(b"keep-alive, ")
        fields.append((b"Upgrade", upgrade))
        if random.random() < 0.8:  # without it, it is no offer
            tokens.append(connection)
    random.shuffle(tokens)
    if tokens and random.random() < 0.5:
        fields += [(b"Connection", token) for token in tokens]
    elif tokens:
        fields.append((b"Connection", b", ".join(tokens)))
    fields += [
        (b"X-%d" % at, random.randbytes(4).hex().encode()) for at in range(random.choice((0, 2, 9)))
    ]
    random.shuffle(fields)
    case = random.choice((bytes.lower, bytes.upper, bytes.title))
    blank = random.choice((b"", b" ", b"\t", b"  "))
    lines = [b"%b:%b%b\r\n" % (case(name), blank, value) for name, value in fields]
    if random.random() < 0.2:
        target = b"http://x" + target  # absolute-form, RFC 9112, section 3.2.2
    blanks = b"\r\n" * random.choice((0, 0, 0, 1))  # section 2.2
    return (
        blanks
        + b"%b %b HTTP/%b\r\n" % (method, target, framing.version)
        + b"".join(lines)
        + b"\r\n"
    )


def _lines(fields: Fields) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in fields])


CLIENTS: dict[str, Client] = {
    "java": java,
    "nginx": nginx,
    "haproxy": haproxy,
    "curl": curl,
    "any": any_client,
}
SPEAKS_1_0 = ("nginx", "curl", "any")
