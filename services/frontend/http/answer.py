"""Answers: whole JSON, and server-sent events."""

from typing import Any

import msgspec
from starlette.types import Send

from baton.rpc.errors import BatonError, Reason

encode = msgspec.json.encode

_JSON = (b"content-type", b"application/json")
_EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


async def send_json(
    send: Send, body: Any, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Answer with JSON."""
    await send_bytes(send, encode(body), status, (_JSON, *headers))


async def send_bytes(
    send: Send, data: bytes, status: int, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    """Answer with bytes."""
    length = (b"content-length", str(len(data)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": data})


async def send_error(send: Send, error: BatonError, allow: str = "") -> None:
    """Answer with an error of the table, in OpenAI's shape.

    Args:
        send: where to.
        error: what.
        allow: the methods that are allowed, where the error is about that.
    """
    headers: list[tuple[bytes, bytes]] = []
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
        headers.append((b"retry-after-ms", str(round(error.retry_after * 1000)).encode()))
    if allow:
        headers.append((b"allow", allow.encode()))
    if error.reason is Reason.BODY_TIMEOUT:
        headers.append((b"connection", b"close"))
    await send_json(send, error.to_openai(), error.http_status, tuple(headers))


class EventStream:
    """A stream of server-sent events; it begins with the first write."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def write(self, data: bytes) -> None:
        """Send whole events. Waits while the client does not read."""
        if not self.begun:
            self.begun = True
            await self._send(
                {"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM}
            )
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes) -> None:
        """Send the last events."""
        await self.write(data)
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})


def error_event(error: BatonError) -> bytes:
    """An error after the stream began; nothing follows it."""
    return b"data: " + encode(error.to_openai()) + b"\n\n"
