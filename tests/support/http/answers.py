"""A strict client of RFC 9112: every byte belongs to exactly one response."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Asked:
    """The part of a request that a client needs to read its response."""

    head: bool
    """Whether its method is HEAD."""
    version: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """A received response."""

    status: int
    fields: dict[bytes, bytes]
    body: bytes

    @property
    def last(self) -> bool:
        """Whether the response says that no other one follows."""
        return self.fields.get(b"connection") == b"close"


def read_answers(data: bytes, asked: list[Asked], closed: bool) -> tuple[list[Answer], int]:
    """Parse everything that was received on a connection.

    Args:
        data: the received bytes.
        asked: the requests that were sent.
        closed: nothing more comes.

    Returns:
        The responses, and how many interim responses came before them.

    Raises:
        AssertionError: a server may not send this for these requests.
    """
    answers: list[Answer] = []
    interim = 0
    while data:
        head, end, rest = data.partition(b"\r\n\r\n")
        assert end, f"no head: {data[:100]!r}"
        line, *lines = head.split(b"\r\n")
        version, status, _ = line.split(b" ", 2)
        assert version == b"HTTP/1.1", line
        if status == b"100":
            assert not lines, head
            interim, data = interim + 1, rest
            continue
        assert not answers or not answers[-1].last, f"behind the last one: {data[:100]!r}"
        fields: dict[bytes, bytes] = {}
        for field in lines:
            name, colon, value = field.partition(b": ")
            assert colon and name not in fields, head
            fields[name.lower()] = value
        about = asked[len(answers)] if len(answers) < len(asked) else Asked(False, b"1.1")
        body, data = _body(about, int(status), fields, rest, closed)
        answers.append(Answer(int(status), fields, body))
    return answers, interim


def _body(
    about: Asked, status: int, fields: dict[bytes, bytes], rest: bytes, closed: bool
) -> tuple[bytes, bytes]:
    """Return a response's body, and the bytes after it."""
    connection = fields.get(b"connection")
    if b"transfer-encoding" in fields:
        assert about.version == b"1.1", "chunks for a client of HTTP/1.0"
        assert fields[b"transfer-encoding"] == b"chunked"
        assert b"content-length" not in fields
    if about.version == b"1.0":
        assert connection in (b"close", b"keep-alive"), connection
    if about.head or status in (204, 304):
        return b"", rest
    if b"content-length" in fields:
        size = int(fields[b"content-length"])
        assert len(rest) >= size, "the answer is cut"
        return rest[:size], rest[size:]
    if b"transfer-encoding" not in fields:
        assert connection == b"close" and closed, "an answer without end"
        return rest, b""
    body = b""
    while True:
        line, end, rest = rest.partition(b"\r\n")
        assert end, "no chunk"
        size = int(line, 16)
        body, chunk_end, rest = body + rest[:size], rest[size : size + 2], rest[size + 2 :]
        assert chunk_end == b"\r\n", "a chunk without end"
        if not size:
            return body, rest
