"""Reads the requests of one connection: uvicorn's parser with the limits that it lacks.

A malformed or late request never affects the responses to earlier ones, which are sent first. A
rejected client receives the error, and then the connection ends. Nothing is read after a request
that its client or this side marked as the last one.

Protocol upgrades are not accepted. llhttp ends a message at the head of one, as if it were; so such
a head is parsed again without its upgrade, and the body is what its length says.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from baton.errors import BatonError, Reason, no_memory
from baton.rpc.timing.loop_watch import Timer
from baton.rpc.transport.unfinished import Unfinished
from services.frontend.http.protocol.bounds import (
    BodyBounds,
    check_head,
    check_version,
    too_long,
    too_many_fields,
)
from services.frontend.http.protocol.exchange import UNREAD_SECONDS, Exchange
from services.frontend.http.protocol.heads import announced_bytes, takes_more, without_offer
from services.frontend.http.protocol.transport import HeldTransport

REFUSED_SECONDS = 1.0
"""Time for a rejected client to close the connection."""
MAX_PIPELINED = 16
"""Most requests that may wait for the response to an earlier one."""
EXTENSION = "baton.connection"

Refuse = Callable[[BatonError], bytes]
"""Records that a request is rejected before any application; returns the complete response."""


class RequestReader(HttpToolsProtocol):
    """Reads requests, on the event loop; owns its timer and ends with its connection."""

    header_seconds: float
    body_seconds: float
    head_bytes: int
    head_fields: int
    unread_seconds = UNREAD_SECONDS
    unfinished = Unfinished(0)
    """Bounds the buffered bodies of all clients."""
    refuse: Refuse
    refusal: BatonError | None = None
    """Why reading has stopped. It is sent after the responses to earlier requests."""
    answering: Exchange = None  # type: ignore[assignment]  # before the first one
    """The request being answered, or the last one."""
    _transport: HeldTransport
    _body: BodyBounds
    _reading: Timer | None = None
    _awaited: float | None = None
    """Seconds for what is being read; None: nothing is being read."""
    _changed = False
    """Whether the awaited part has changed since `_reading` was set."""
    _parsing = False
    _in_head = False
    _in_body = False
    _head_bytes = 0
    """Bytes of the head being read, except its first read."""
    _messages = 0
    """Number of requests that have begun."""
    _offers = False
    """Whether the head offers an upgrade, and is to be parsed again without it."""
    _last_read = False
    """Whether the last request was read, as marked by its client."""
    _surplus = False
    """Whether more data followed it."""
    _ended = False
    """Whether nothing more is sent."""
    _holds = False
    """Whether received bytes of a body count as unfinished."""
    _streams = False
    """Whether the body's handler keeps none of it."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.parser = httptools.HttpRequestParser(self)  # without uvicorn's leniency

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = HeldTransport(transport, self._close)
        super().connection_made(self._transport)
        self._await(self.header_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._await(None)
        if self._holds:
            self._holds = False
            self.unfinished.note(self, 0)
        if self._answering and not self.answering.response_complete:
            self.answering.disconnected = True  # uvicorn notifies the one that was read last
            self.answering.message_event.set()
        super().connection_lost(exc)
        # Break reference cycles: memory is freed now, and not by the garbage collector.
        self._transport.let_go()
        self.cycle = self.answering = None  # type: ignore[assignment]  # as before the first one
        self.scope = None  # type: ignore[assignment]

    @property
    def body_complete(self) -> bool:
        """Whether all requests that have begun are here, with their bodies."""
        return not self._in_body

    @property
    def lost(self) -> bool:
        """Whether the client has disconnected."""
        return self.transport.is_closing()

    def data_received(self, data: bytes) -> None:
        if self.refusal is not None or self._ended or self._last_read:
            self._surplus = True
            return
        # Most requests come in one read, which then sets no timer.
        self._parsing = True
        self._parse(data)
        self._parsing = False
        if self._in_body or self._holds:
            self._note_unfinished()
        if self._changed:
            self._arm()

    def on_message_begin(self) -> None:
        if self._last_read:  # it is reported by an error, and is not processed
            raise BatonError(Reason.MALFORMED_HEAD, "a request behind the last one")
        if len(self.pipeline) >= MAX_PIPELINED:
            many = f"more than {MAX_PIPELINED} pipelined requests wait on this connection"
            raise BatonError(Reason.RATE_LIMITED, many)
        super().on_message_begin()
        self._unset_keepalive_if_required()  # empty lines before it are not part of it
        self._in_head, self._head_bytes, self._streams = True, 0, False
        self._messages += 1
        self._await(self.header_seconds)
        self.scope["extensions"] = {EXTENSION: self}  # type: ignore[dict-item]  # ours, no ASGI

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:  # after the body: nothing there has a meaning here
            self._body.add_trailer()
            return
        # As in uvicorn: calling it would take as long as all of this.
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))
        if len(self.headers) > self.head_fields:
            raise too_many_fields(self.head_fields)

    def on_headers_complete(self) -> None:
        parser = self.parser
        method, version = parser.get_method(), parser.get_http_version()
        if parser.should_upgrade():
            self._offers = True
            if method == b"CONNECT":
                raise BatonError(
                    Reason.MALFORMED_HEAD, "CONNECT is not supported: this server is not a proxy"
                )
            return
        check_head(version, self.url, self.headers, self.head_bytes)
        target, scope = httptools.parse_url(self.url), self.scope
        raw_path = target.path or b"/"
        path = raw_path.decode("ascii")
        scope["method"], scope["http_version"] = method.decode("ascii"), version
        scope["path"], scope["raw_path"] = unquote(path) if "%" in path else path, raw_path
        scope["query_string"] = target.query or b""
        self._in_head, self._in_body = False, True
        self._body = BodyBounds(self.head_fields, self.head_bytes)
        self._take(version)
        self._await(self.body_seconds)

    def _take(self, version: str) -> None:
        """Begin to answer the request whose head arrived, or queue it behind earlier ones."""
        server, waits = self.server_state, self._answering
        self.cycle = exchange = Exchange(
            self._body,
            announced_bytes(self.headers),
            self.unread_seconds,
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=self.access_log,
            default_headers=server.default_headers,
            expect_100_continue=self.expect_100_continue and version != "1.0",
            keep_alive=self._stays_open(),
            on_response=self.on_response_complete,
        )
        if waits:
            self.pipeline.appendleft((exchange, self.app))
            self.flow.resume_reading()  # to notice that the client disconnects
        else:
            self._start_asgi_task(exchange, self.app)

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self.answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_chunk_header(self) -> None:
        """Handle a chunk header, called as the parser reads its length."""
        self._body.add_chunk()

    def on_body(self, body: bytes) -> None:
        self._body.add(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._offers:
            return
        self._in_body = False
        self._last_read = not self._stays_open()
        self._await(None)
        super().on_message_complete()

    def _parse(self, data: bytes) -> None:
        messages, in_head, in_body = self._messages, self._in_head, self._in_body
        body_bytes = self._body.size if in_body else 0
        try:
            while data:
                try:
                    self.parser.feed_data(data)
                    break
                except httptools.HttpParserUpgrade as offer:
                    data = self._without_offer() + data[offer.args[0] :]
            if self._in_head and data[-1:] == b"\n" and self.parser.get_http_version() == "0.0":
                check_version("0.9")  # a line without a version, and no more may come
            if self._messages != messages:
                return  # what began with this read is counted from the next one on
            if self._in_head and in_head:
                self._head_bytes += len(data)
                if self._head_bytes > self.head_bytes:
                    raise too_long(self.head_bytes)
            if self._in_body and in_body:
                self._body.add_frames(len(data) - (self._body.size - body_bytes))
        except httptools.HttpParserError as error:
            if self._last_read:
                self._surplus = True
            else:
                self._refuse(self._what_is_wrong(error))
        except BatonError as error:
            self._refuse(error)

    def _stays_open(self) -> bool:
        parser = self.parser
        return parser.should_keep_alive() and takes_more(parser.get_http_version(), self.headers)

    def stream_body(self, seconds: float) -> None:
        """Let the body of the request being answered be of any length: its handler keeps none of
        it.

        Args:
            seconds: for the rest of it.
        """
        if self._in_body and self.answering is self.cycle:
            self._streams = True
            self._note_unfinished()
            self._await(seconds)

    def _note_unfinished(self) -> None:
        streams = self._streams or self.lost
        self._holds = self._in_body and self.refusal is None and not streams
        self.unfinished.note(self, self._body.size if self._holds else 0)

    def give_up(self, error: BatonError) -> None:
        """Reject the request whose body is arriving: there are too many unfinished bodies."""
        self._holds = False
        self._refuse(error)

    def _without_offer(self) -> bytes:
        """Return the received head without its upgrade, for a new parser."""
        method, version = self.parser.get_method(), self.parser.get_http_version()
        self.parser = httptools.HttpRequestParser(self)
        self._offers = False
        return without_offer(method, self.url, version, self.headers)

    def _what_is_wrong(self, error: httptools.HttpParserError) -> BatonError:
        raised = error.__context__
        if isinstance(raised, BatonError):  # by a callback
            return raised
        if isinstance(raised, MemoryError):
            return no_memory()
        if self._in_body:
            reason, what = Reason.MALFORMED_BODY, f"the body is not valid HTTP/1.1: {error}"
        elif isinstance(error, httptools.HttpParserCallbackError):  # in uvicorn's own callbacks
            reason, what = Reason.MALFORMED_HEAD, "the request target is malformed"
        else:
            reason, what = Reason.MALFORMED_HEAD, f"the request is not valid HTTP/1.1: {error}"
        return BatonError(reason, what)

    # Timeouts, and rejections.

    def on_response_complete(self) -> None:
        if not self.answering.keep_alive:
            self.pipeline.clear()  # its client was told that nothing follows this response
        super().on_response_complete()
        if self.refusal is not None:
            self._tell_refusal()
        elif self._awaited is not None and self._reading is None:
            self._arm()

    def _await(self, seconds: float | None) -> None:
        """Cut the connection if the awaited part does not arrive in time; None awaits nothing.

        While a read is being parsed only the last call counts, at its end.
        """
        self._awaited, self._changed = seconds, True
        if not self._parsing:
            self._arm()

    def _arm(self) -> None:
        self._changed = False
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        # An earlier request is not answered yet: `on_response_complete` continues.
        behind = self.pipeline or (self._in_head and self._answering)
        if self._awaited is not None and not behind:
            self._reading = Timer(self._awaited, self.transport.abort)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, error: BatonError) -> None:
        """Stop reading, and send the client the error once all earlier requests are answered."""
        self.refusal = error
        if not self._in_body:
            self._tell_refusal()
        elif self._answering:  # its handler reads the body, and receives the error there
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
        """Close the connection after pending writes: uvicorn has nothing more to send."""
        if not self.lost and (self._in_body or self._surplus or self.refusal is not None):
            self._end()
        else:
            self._transport.close_now()

    def _end(self) -> None:
        """Stop sending. What the client still sends is read and dropped: closing immediately would
        reset the connection, and the response might be lost with it."""
        self._ended = True
        if not self._transport.end_writing():  # TLS cannot half-close
            self._transport.close_now()
        self._await(REFUSED_SECONDS)
