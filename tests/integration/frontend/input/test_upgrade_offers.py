"""Offers to go on with another protocol are not taken, and the body is what its length says."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.clock import within

OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    b"HTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    "TLS/1.2": b"Connection: Upgrade\r\nUpgrade: TLS/1.2\r\n",
}
PATHS = ("/v1/chat/completions", "/v1/completions", "/tokenize")
SMUGGLED = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"


def body_for(stage: Any, path: str) -> bytes:
    said = {"messages": [{"role": "user", "content": "Hello"}]}
    asked = said if path.endswith("chat/completions") else {"prompt": "Hello"}
    if path != "/tokenize":
        asked = {**asked, "max_tokens": 4}
    return json.dumps({"model": stage.model, **asked}).encode()


class Client:
    """One connection of a client that knows no leniency."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, *segments: bytes) -> None:
        for segment in segments:
            self._writer.write(segment)
            await self._writer.drain()
            await asyncio.sleep(0.02)

    async def answer(self) -> tuple[int, Any]:
        """Return the next answer's status and JSON."""
        async with within(10):
            head = await self._reader.readuntil(b"\r\n\r\n")
            fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
            body = await self._reader.readexactly(int(fields["content-length"]))
        return int(head.split(b" ")[1]), json.loads(body)

    async def rest(self) -> bytes:
        """Return all that comes until the connection ends, behind a request that is its last."""
        await self.send(b"GET /health/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        async with within(10):
            return await self._reader.read()

    def close(self) -> None:
        self._writer.close()


@pytest.fixture
async def client(stage: Any) -> AsyncIterator[Client]:
    host, port = stage.http_url.removeprefix("http://").split(":")
    client = Client(*await asyncio.open_connection(host, int(port)))
    yield client
    client.close()


@pytest.mark.parametrize("cut", ["one segment", "two segments", "chunks"])
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("offer", OFFERS)
async def test_a_request_that_offers_another_protocol_is_answered(
    stage: Any, client: Client, offer: str, path: str, cut: str
) -> None:
    body = body_for(stage, path)
    head = b"POST %b HTTP/1.1\r\nHost: x\r\n" % path.encode() + OFFERS[offer]
    head += b"Content-Type: application/json\r\n"
    if cut == "chunks":
        head += b"Transfer-Encoding: chunked\r\n\r\n"
        half = len(body) // 2
        sizes = ((b"%x\r\n%b\r\n" % (len(one), one)) for one in (body[:half], body[half:]))
        segments = [head, *sizes, b"0\r\n\r\n"]
    else:
        head += b"Content-Length: %d\r\n\r\n" % len(body)
        segments = [head + body] if cut == "one segment" else [head, body]
    for _ in range(2):
        await client.send(*segments)
        status, said = await client.answer()
        assert status == 200, said
        assert "choices" in said or "tokens" in said
    rest = await client.rest()
    assert rest.count(b"HTTP/1.1 ") == 1
    assert rest.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("offer", OFFERS)
async def test_a_body_that_looks_like_a_request_is_a_body(
    client: Client, offer: str, path: str
) -> None:
    head = b"POST %b HTTP/1.1\r\nHost: x\r\n" % path.encode() + OFFERS[offer]
    await client.send(head + b"Content-Length: %d\r\n\r\n" % len(SMUGGLED) + SMUGGLED)
    status, said = await client.answer()
    assert (status, said["error"]["code"]) == (400, "malformed_body")
    rest = await client.rest()
    assert rest.count(b"HTTP/1.1 ") == 1
    assert rest.startswith(b"HTTP/1.1 200")
