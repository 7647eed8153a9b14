"""Responses: whole JSON, and server-sent events."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.errors import BatonError, Reason
from services.frontend.http.asgi import Message, Send
from services.frontend.http.protocol.connection import Wire

Header = tuple[bytes, bytes]

encode = msgspec.json.encode

_LINE_ENDS = tuple((end.encode(), b"\\u%04x" % ord(end)) for end in "\x85\u2028\u2029")
"""Unicode's line ends that JSON allows unescaped, with their escapes."""

_JSON = (b"content-type", b"application/json")
_EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def encode_line(value: Any) -> bytes:
    """Return a value as JSON that is one line to every client.

    An event ends its lines only with CR and LF, but many clients read them with functions that also
    split at Unicode's line ends, such as Python's `str.splitlines`: a text with U+2028 would be
    split in two, neither of them JSON.
    """
    data = encode(value)
    if not data.isascii():
        for bare, escaped in _LINE_ENDS:
            data = data.replace(bare, escaped)
    return data


async def send_json(
    send: Send, body: Any, status: int = 200, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    """Send a JSON response."""
    await send_bytes(send, encode(body), status, (_JSON, *headers))


async def send_bytes(
    send: Send, data: bytes, status: int, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    """Send a response."""
    length = (b"content-length", str(len(data)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": data})


_FINAL = frozenset({Reason.INSUFFICIENT_QUOTA, Reason.BATCH_ENDED})


class MethodNotAllowedError(BatonError):
    """METHOD_NOT_ALLOWED: the path exists, for other methods."""

    def __init__(self, path: str, method: str, allow: str) -> None:
        """List the allowed methods in the form of the header `allow`."""
        message = f"{path[:200]} does not support {method}; supported: {allow}"
        super().__init__(Reason.METHOD_NOT_ALLOWED, message)
        self.allow = allow


async def send_error(send: Send, error: BatonError) -> None:
    """Send an error in OpenAI's format."""
    headers: list[tuple[bytes, bytes]] = []
    if error.retry_after is not None:
        headers.append((b"retry-after", str(max(1, round(error.retry_after))).encode()))
        headers.append((b"retry-after-ms", str(round(error.retry_after * 1000)).encode()))
    elif error.reason in _FINAL or error.quota is not None:
        # It stays so, and OpenAI's clients would retry 429 and 409.
        headers.append((b"x-should-retry", b"false"))
    if error.reason is Reason.INVALID_API_KEY:
        headers.append((b"www-authenticate", b"Bearer"))
    if isinstance(error, MethodNotAllowedError):
        headers.append((b"allow", error.allow.encode()))
    if error.reason is Reason.BODY_TIMEOUT:
        headers.append((b"connection", b"close"))
    await send_json(send, error.to_openai(), error.http_status, tuple(headers))


class EventStream:
    """A stream of server-sent events, which begins with the first of them.

    While the client has unread data, pushed events wait for `begin`.
    """

    def __init__(self, wire: Wire, send: Send, headers: Sequence[Header] = ()) -> None:
        self._headers = (*_EVENT_STREAM, *headers)
        self._wire = wire
        self._send = send
        self._early: list[bytes] = []
        self.begun = False

    def push(self, data: bytes) -> bool:
        """Send whole events, or nothing; never waits. Return whether `begin` is needed."""
        if self.begun:
            if data:
                self._wire.write_piece(data)
            return False
        if not data:
            return bool(self._early)
        if not self._early and self._wire.begin(self._send, self._start(), data):
            self.begun = True
            return False
        self._early.append(data)
        return True

    async def begin(self) -> None:
        """Begin the response with the events pushed so far."""
        if not self.begun:
            await self._send(self._start())
            self.begun = True
            if self._early:
                self._wire.write_piece(b"".join(self._early))

    async def end(self, data: bytes) -> None:
        """Send the last events. Waits while the client does not read."""
        await self.begin()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def _start(self) -> Message:
        return {"type": "http.response.start", "status": 200, "headers": list(self._headers)}


def error_event(error: BatonError) -> bytes:
    """Return the event of an error after the stream began; nothing follows it."""
    return b"data: " + encode_line(error.to_openai()) + b"\n\n"
