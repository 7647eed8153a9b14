"""One request and its response on the wire, as HTTP/1.1 and 1.0 frame them (RFC 9112).

The response's framing is one that its client understands: HTTP/1.0 clients get no chunks. A
response that begins before its request's body is complete is the last one of its connection, unless
the rest is short and arrives soon: clients and proxies disagree on where an unread body ends.
"""

from asyncio import Event
from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    HEADER_RE,
    HEADER_VALUE_RE,
    STATUS_LINE,
    RequestResponseCycle,
)

from baton.rpc.timing.loop_watch import timeout
from services.frontend.http.asgi import Message
from services.frontend.http.protocol.bounds import BodyBounds

UNREAD_BYTES = 64 * 1024
"""Of a body that its response does not need: up to this much is read and dropped, to keep the
connection ..."""
UNREAD_SECONDS = 2.0
"""... if it arrives within this time."""
_NO_BODY = (204, 304)
_LAST = b"connection: close\r\n"


class Exchange(RequestResponseCycle):
    """Writes the response to one request. Owned by its connection, on the event loop.

    Args:
        body: counts the received part of the request's body.
        announced: content length of the body; 0: none is given.
        unread_seconds: for the rest of a body that its response does not need.
        **wire: arguments from the connection and uvicorn's server.
    """

    def __init__(
        self, body: BodyBounds, announced: int, unread_seconds: float, **wire: Any
    ) -> None:
        super().__init__(message_event=Event(), **wire)
        self._body_bounds = body
        self._announced = announced
        self._unread_seconds = unread_seconds
        self._old = self.scope["http_version"] == "1.0"
        self._until_close = False
        """Whether the response ends with the connection."""
        self.has_body = self.scope["method"] != "HEAD"
        """Whether the response has a body."""
        self._head = b""
        """Of a response whose length is known: it is written with the body."""

    async def send(self, message: Any) -> None:
        """Write a part of the response. Waits while the client does not read, and before the
        response begins for the rest of a short body.

        Raises:
            RuntimeError: the application's messages are not a valid response.
        """
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.more_body and not (self.response_started or self.disconnected):
            await self._drop_body(message)
        if self.disconnected:
            return
        if not self.response_started:
            self._begin(message)
        elif not self.response_complete:
            self._go_on(message)
        else:
            raise RuntimeError(f"{message['type']} after the end of the answer")

    async def receive(self) -> Any:
        """Return the next part of the body, and whether more follows; or that the client left."""
        if self.waiting_for_100_continue and self.more_body and not self.body:
            if not self.transport.is_closing():
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self.waiting_for_100_continue = False
        return await super().receive()

    async def _drop_body(self, start: Message) -> None:
        """Wait for the rest of an unread body; if it is long, late, or possibly never sent, make
        the response the last one of its connection."""
        if (
            not self.keep_alive
            or self.waiting_for_100_continue
            or any(name == b"connection" for name, _ in start["headers"])
            or not await self._body_came()
        ):
            self.keep_alive = False

    async def _body_came(self) -> bool:
        """Return whether the body is complete, or the client gone, within the bounds."""
        try:
            async with timeout(self._unread_seconds):
                while self.more_body and not self.disconnected and self.keep_alive:
                    if max(self._announced, self._body_bounds.size) > UNREAD_BYTES:
                        return False
                    self.body.clear()
                    self.flow.resume_reading()
                    await self.message_event.wait()
                    self.message_event.clear()
        except TimeoutError:
            return False
        return True

    def _begin(self, start: Message) -> None:
        """Write the head."""
        if start["type"] != "http.response.start":
            raise RuntimeError(f"{start['type']} before the answer has begun")
        self.response_started = True
        status = start["status"]
        content, length, said = [STATUS_LINE[status]], -1, False
        for name, value in (*self.default_headers, *start["headers"]):
            if HEADER_RE.search(name) or HEADER_VALUE_RE.search(value):
                raise RuntimeError("a header field with a character that none may have")
            if name == b"content-length":
                length = int(value)
            elif name == b"connection":
                self.keep_alive, said = False, True
            content += (name, b": ", value, b"\r\n")
        self.chunked_encoding, self.expected_content_length = False, max(0, length)
        self.has_body = self.has_body and status not in _NO_BODY
        if not self.has_body:
            pass  # whatever the header fields say (RFC 9112, section 6.3)
        elif length < 0 and self._old:
            self._until_close, self.keep_alive = True, False
        elif length < 0:
            self.chunked_encoding = True
            content.append(b"transfer-encoding: chunked\r\n")
        if self.keep_alive and self._old:
            content.append(b"connection: keep-alive\r\n")
        elif not self.keep_alive and not said:
            content.append(_LAST)
        content.append(b"\r\n")
        if length > 0:
            self._head = b"".join(content)
        else:
            self.transport.write(b"".join(content))

    def _go_on(self, message: Message) -> None:
        """Write the next part of the body."""
        if message["type"] != "http.response.body":
            raise RuntimeError(f"{message['type']} within the answer")
        body, more = message.get("body", b""), message.get("more_body", False)
        if self.chunked_encoding:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            self.transport.write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            if self.has_body and not self._until_close:
                self.expected_content_length -= len(body)
                if self.expected_content_length < 0 or (self.expected_content_length and not more):
                    raise RuntimeError("the answer is not as long as its content-length says")
            head, self._head = self._head, b""
            if data := head + body if self.has_body else head:
                self.transport.write(data)
        if not more:
            self.response_complete = True
            self.message_event.set()
            if not self.keep_alive:
                self.transport.close()
            self.on_response()
