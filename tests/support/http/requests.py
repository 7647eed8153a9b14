"""Random requests of any client, how they are split, and the responses that they must get."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from zlib import crc32

from services.frontend.http.protocol.exchange import UNREAD_BYTES
from tests.support.http.answers import Answer, Asked
from tests.support.http.clients import CLIENTS, SPEAKS_1_0, Framing

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: x\r\n\r\n"
"""A request within a body, or where none may be."""
_CONTENTS = (
    b"",
    b"{}",
    b"\r\n",
    b"0\r\n\r\n",
    SMUGGLED,
    SMUGGLED * 3,
    b"0\r\n\r\n" + SMUGGLED,
    b"\r\n" + SMUGGLED,
    b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a random connection."""

    number: int
    kind: str
    method: bytes
    framing: Framing
    head: bytes
    body: bytes
    content: bytes
    """The decoded body."""

    @property
    def asked(self) -> Asked:
        return Asked(self.method == b"HEAD", self.framing.version)

    @property
    def may_end(self) -> bool:
        """Whether its response may be the last one of the connection."""
        framing = self.framing
        old = framing.version == b"1.0"
        late = self.kind == "refused" and (framing.expects or len(self.body) > UNREAD_BYTES)
        return framing.last or late or (old and self.kind == "stream" and self.method != b"HEAD")

    @property
    def must_end(self) -> bool:
        """Whether its response must be the last one."""
        old = self.framing.version == b"1.0" and self.method != b"HEAD"
        return self.framing.last or (old and self.kind == "stream")

    def check(self, answer: Answer) -> None:
        """Check that a response belongs to this request."""
        if self.kind == "refused":
            assert answer.status == 401, answer
        else:
            assert answer.status == 200, answer
        if self.method == b"HEAD":
            assert not answer.body
        elif self.kind == "refused":
            assert json.loads(answer.body)["error"]["message"] == str(self.number)
        else:
            said = [str(self.number), len(self.content), crc32(self.content)]
            text = " ".join(map(str, said)) + " end"
            shown = answer.body.decode() if self.kind == "stream" else json.loads(answer.body)
            assert shown == (text if self.kind == "stream" else said), (self, answer)
        assert self.may_end or not answer.last, (self, answer)
        assert answer.last or not self.must_end, (self, answer)


def draw_request(random: Random, number: int) -> Request:
    """Return a random request."""
    name = random.choice(list(CLIENTS))
    kind = random.choice(("whole", "whole", "stream", "refused"))
    method = random.choice((b"GET", b"HEAD", b"POST", b"POST", b"POST", b"DELETE"))
    old = name in SPEAKS_1_0 and random.random() < 0.3
    content = random.choice(_CONTENTS)
    if random.random() < 0.1:
        content += random.randbytes(random.choice((100, 20_000, 100_000)))
    has_body = method == b"POST" or (method != b"HEAD" and random.random() < 0.2)
    if not has_body:
        content = b""
    chunked = has_body and not old and random.random() < 0.4
    framing = Framing(
        version=b"1.0" if old else b"1.1",
        chunked=chunked,
        length=len(content) if has_body and not chunked else None,
        last=name != "java" and random.random() < 0.1,
        expects=bool(content) and not old and random.random() < 0.1,
    )
    target = b"/%b/%d" % (kind.encode(), number)
    head = CLIENTS[name](random, method, target, framing)
    body = _chunks(random, content) if chunked else content
    return Request(number, kind, method, framing, head, body, content)


def _chunks(random: Random, content: bytes) -> bytes:
    """Return a body in chunks of random lengths, with extensions and trailers."""
    body, at = b"", 0
    while at < len(content):
        size = min(len(content) - at, random.choice((1, 7, 100, 5_000, 70_000)))
        extension = random.choice((b"", b"", b";a", b';a=b;c="d"'))
        zeros = b"0" * random.choice((0, 0, 3))
        body += b"%b%x%b\r\n%b\r\n" % (zeros, size, extension, content[at : at + size])
        at += size
    trailers = random.choice((b"", b"", b"x-a: b\r\n", b"host: y\r\nx-request-id: z\r\n"))
    return body + b"0\r\n" + trailers + b"\r\n"


def cut(random: Random, data: bytes) -> Iterator[bytes]:
    """Yield data in segments."""
    how = random.choice(("whole", "few", "many"))
    if how == "many" and len(data) > 800:
        how = "few"
    if how == "many":
        yield from (data[at : at + 1] for at in range(len(data)))
        return
    places = random.sample(range(len(data)), min(len(data), 3)) if how == "few" else []
    last = 0
    for place in [*sorted(places), len(data)]:
        if place > last:
            yield data[last:place]
        last = place
