"""The requests of one connection as they come: uvicorn's parser with the limits that it lacks.

What is wrong with a request, or late, never touches the answers to those before it: they come
first. A client that was refused is told so, and then the connection ends.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from baton.errors import BatonError, Reason
from baton.rpc.loop_watch import Timer
from services.frontend.http.bounds import (
    BodyBounds,
    check_head,
    check_version,
    too_long,
    too_many_fields,
)
from services.frontend.http.transport import HeldTransport

REFUSED_SECONDS = 1.0
"""A client that was refused has this long to close the connection."""
MAX_PIPELINED = 16
"""Requests that may wait for the answer to the one before them."""
EXTENSION = "baton.connection"

Refuse = Callable[[BatonError], bytes]
"""Records that a request is refused before any application sees it; returns the whole answer."""


class RequestReader(HttpToolsProtocol):
    """Reads requests, on the event loop; owns its timer and ends with its connection."""

    header_seconds: float
    body_seconds: float
    head_bytes: int
    head_fields: int
    refuse: Refuse
    refusal: BatonError | None = None
    """Why nothing is read any more. It is told behind the answers to what was read before."""
    _transport: HeldTransport
    _body: BodyBounds
    _reading: Timer | None = None
    _awaited: float | None = None
    """Seconds for what is being read; None: nothing is awaited."""
    _changed = False
    """Something else is awaited since `_reading` was set."""
    _parsing = False
    _in_head = False
    _in_body = False
    _head_bytes = 0
    """Of the head that is being read, its first read aside."""
    _ended = False
    """Nothing more is sent."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = HeldTransport(transport, self._close)
        super().connection_made(self._transport)
        self._await(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        super().connection_lost(exc)
        # Part what refers to each other: it is freed at once, and not by the collector.
        self._transport.let_go()
        self.cycle = None  # type: ignore[assignment]  # as it is before the first request
        self.scope = None  # type: ignore[assignment]

    @property
    def lost(self) -> bool:
        """Whether the client is gone."""
        return self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.refusal is not None or self._ended:
            return
        # Most requests come in one read, which then sets no timer.
        self._parsing = True
        self._parse(data)
        self._parsing = False
        if self._changed:
            self._arm()

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= MAX_PIPELINED:
            many = f"more than {MAX_PIPELINED} requests wait on this connection"
            raise BatonError(Reason.RATE_LIMITED, many)
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        self._await(self.header_seconds)
        self.scope["extensions"] = {EXTENSION: self}  # type: ignore[dict-item]  # ours, no ASGI

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # behind the body: nothing that is said there means anything here
            self._body.add_trailer()
            return
        # What uvicorn does: to call it takes as long as all of this.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > self.head_fields:
            raise too_many_fields(self.head_fields)

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        check_head(version, self.url, self.headers, self.head_bytes)
        super().on_headers_complete()
        self._in_head, self._in_body = False, True
        self._body = BodyBounds(self.head_fields)
        self._await(self.body_seconds)
        if self.pipeline:
            self.flow.resume_reading()  # to notice that the client leaves

    def on_chunk_header(self) -> None:
        """Hear of a chunk, as the parser reads its length."""
        self._body.add_chunk()

    def on_body(self, body: bytes) -> None:
        self._body.add(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._await(None)
        super().on_message_complete()

    def _parse(self, data: bytes) -> None:
        begun = self._in_head
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as offer:  # not taken: HTTP/1.1 goes on
                    data = data[offer.args[0] :]
            if self._in_head and data[-1:] == b"\n" and self.parser.get_http_version() == "0.0":
                check_version("0.9")  # a line without a version, and no more may come
            if self._in_head and begun:
                self._head_bytes += len(data)
                if self._head_bytes > self.head_bytes:
                    raise too_long(self.head_bytes)
        except httptools.HttpParserError as error:
            self._refuse(self._what_is_wrong(error))
        except BatonError as error:
            self._refuse(error)

    def _what_is_wrong(self, error: httptools.HttpParserError) -> BatonError:
        if isinstance(error.__context__, BatonError):  # what a callback raised
            return error.__context__
        if self._in_body:
            reason, what = Reason.MALFORMED_BODY, f"the body is not HTTP/1.1: {error}"
        elif isinstance(error, httptools.HttpParserCallbackError):  # in uvicorn's own callbacks
            reason, what = Reason.MALFORMED_HEAD, "the target of the request is malformed"
        else:
            reason, what = Reason.MALFORMED_HEAD, f"the request is not HTTP/1.1: {error}"
        return BatonError(reason, what)

    # What is awaited of it, and how it is refused.

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.refusal is not None:
            self._tell_refusal()
        elif self._awaited is not None and self._reading is None:
            self._arm()

    def _await(self, seconds: float | None) -> None:
        """Cut the connection if what is awaited does not come in time; None awaits nothing.

        While a read is parsed only the last call counts, at its end.
        """
        self._awaited, self._changed = seconds, True
        if not self._parsing:
            self._arm()

    def _arm(self) -> None:
        self._changed = False
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        # Behind a request that is not answered yet there is time: `on_response_complete` goes on.
        behind = self.pipeline or (self._in_head and self._answering)
        if self._awaited is not None and not behind:
            self._reading = Timer(self._awaited, self.transport.abort)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, error: BatonError) -> None:
        """Read nothing more, and tell the client why once all before it is answered."""
        self.refusal = error
        if not self._in_body:
            self._tell_refusal()
        elif self._answering:  # what answers it reads the body, and hears of it there
            self.cycle.keep_alive = False
            self.cycle.message_event.set()
        else:
            self._end()

    def _tell_refusal(self) -> None:
        if not (self._answering or self.pipeline or self._ended or self.lost):
            assert self.refusal is not None
            self.transport.write(copy_context().run(self.refuse, self.refusal))
            self._end()

    def _close(self) -> None:
        """Close the connection behind what was sent: uvicorn has nothing more to send."""
        if not self.lost and (self._in_body or self.refusal is not None):
            self._end()
        else:
            self._transport.close_now()

    def _end(self) -> None:
        """Send nothing more. What the client still sends is read and dropped: closing at once would
        reset the connection, and the answer might be lost with it."""
        self._ended = True
        if not self._transport.end_writing():  # TLS has none
            self._transport.close_now()
        self._await(REFUSED_SECONDS)
