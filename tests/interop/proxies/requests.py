"""Requests that know their own answers, and a client that reads no more than those."""

import asyncio
import json
from dataclasses import dataclass

from tests.support.http.answers import Answer, Asked, read_answers

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A request, and what its answer must be."""

    identity: str
    data: bytes
    status: int

    def check(self, answer: Answer) -> None:
        """Check that an answer is this request's."""
        assert answer.status == self.status, (self.identity, answer)
        assert answer.fields[b"x-request-id"] == self.identity.encode(), (self.identity, answer)
        if self.status == 200:
            assert json.loads(answer.body)["prompt"] == self.identity, (self.identity, answer)


def text(identity: str, ids: dict[str, list[int]], *fields: str, chunked: bool = False) -> Sent:
    """Return a request for the text of tokens: its answer is nobody else's."""
    body = json.dumps({"tokens": ids[identity]}).encode()
    return _sent(identity, "/detokenize", body, 200, *fields, chunked=chunked)


def wrong(identity: str, body: bytes, *fields: str) -> Sent:
    """Return a request with a body that is refused."""
    return _sent(identity, "/v1/completions", body, 400, *fields)


def unknown(identity: str) -> Sent:
    """Return a request for nothing, which is answered before its body is read."""
    return _sent(identity, "/v1/nothing", b"{}" * 40, 404)


def _sent(
    identity: str, path: str, body: bytes, status: int, *fields: str, chunked: bool = False
) -> Sent:
    framing = "transfer-encoding: chunked" if chunked else f"content-length: {len(body)}"
    lines = [
        f"POST {path} HTTP/1.1",
        "host: baton",
        "content-type: application/json",
        f"x-request-id: {identity}",
        framing,
        *fields,
    ]
    if chunked:
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return Sent(identity, "\r\n".join([*lines, "", ""]).encode() + body, status)


async def ask(port: int, *requests: Sent, segments: int = 1) -> list[Answer]:
    """Send requests on one connection, all at once, and return their answers.

    Raises:
        AssertionError: there are more or fewer, or they are mixed.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = b"".join(one.data for one in requests)
        size = -(-len(data) // segments)
        for at in range(0, len(data), size):
            writer.write(data[at : at + size])
            await writer.drain()
            if segments > 1:
                await asyncio.sleep(0.02)
        came = b""
        async with asyncio.timeout(SECONDS):
            while (answers := _read(came, len(requests))) is None:
                piece = await reader.read(1 << 16)
                if not piece:
                    raise AssertionError(f"closed after {came[-300:]!r}")
                came += piece
        await asyncio.sleep(0.01)
        for one, answer in zip(requests, answers, strict=True):
            one.check(answer)
        return answers
    finally:
        writer.close()


def _read(came: bytes, count: int) -> list[Answer] | None:
    """Return the answers once there are as many; None: there are not yet."""
    try:
        answers, _ = read_answers(came, [Asked(False, b"1.1")] * count, False)
    except AssertionError:
        return None
    return answers if len(answers) >= count else None
