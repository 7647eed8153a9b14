"""One session: its open requests, and the messages on its stream."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Protocol

from baton.errors import BatonError, Reason, invalid_field
from baton.request.stream_events import Event, Finished
from baton.tenancy.directory.principal import Principal
from baton.v1 import inference_pb2
from services.frontend.generation.admission import stopping
from services.frontend.generation.inference import Inference
from services.frontend.grpc.session.outgoing import Outgoing
from services.frontend.grpc.session.running import RunningRequest

MESSAGE_BYTES = 64 * 1024
"""Approximate size of messages that a turn's events are split into; clients accept 4 MiB."""
BEGIN_PER_TURN = 32
"""Requests begun per turn, including rejected ones, which are recorded too."""
MAX_CANCELS = 16_384
"""Most ids that one message may cancel."""


class SessionCall(Protocol):
    """The part of a call that a session uses."""

    on_pause: Any
    """Called when the client does not read and 64 KiB wait for it; `on_resume` when it does."""
    on_resume: Any
    on_retire: Any
    """Called when the client was told to open new calls on another connection."""

    @property
    def retired(self) -> bool:
        """Whether the client was told before."""
        ...

    @property
    def failure(self) -> Exception | None:
        """Why it was cut off from outside."""
        ...

    def time_remaining(self) -> float | None: ...
    def send(self, message: Any) -> bool: ...
    def receive(self, on_message: Any, on_end: Any) -> None: ...
    def hold_requests(self) -> None: ...
    def release_requests(self) -> None: ...


class GrpcSession:
    """Runs the requests of one stream. Lives on the event loop, ends with its call.

    All requests' events of one turn of the loop leave as one message. While the client does not
    read, all requests are paused: each is bounded by its own buffer, and so are the events of those
    that end meanwhile, since no more than `max_requests` may begin in that time.
    """

    def __init__(
        self,
        inference: Inference,
        call: SessionCall,
        max_requests: int,
        admit: Callable[[], Principal],
    ) -> None:
        """Serve a call with `inference`; at most `max_requests` may be open.

        `admit` returns the principal, at each request's start, or raises its rejection.
        """
        self._inference = inference
        self._admit = admit
        self._call = call
        self._max_requests = max_requests
        self._open: dict[int, RunningRequest] = {}
        """Requests by id, until the last event of each is being sent."""
        self._running: set[RunningRequest] = set()
        """All requests, including rejected ones and those whose last event is being sent."""
        self._message: inference_pb2.SessionRequest | None = None
        """The client's message that is not fully processed; `_begun` of its starts are."""
        self._begun = 0
        self._outgoing = Outgoing()
        self._flushing = False
        self._paused = False
        self._begun_while_paused = 0
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        """Context of each request: the call's trace and scope."""
        self._end: BatonError | None = None
        """Why the call ends after its last request."""
        self._ending = False
        self._ended: asyncio.Future[None] = self._loop.create_future()

    async def serve(self) -> None:
        """Serve until the client has ended its side and each of its requests has ended.

        Raises:
            BatonError: DRAINING after `drain`; SLOW_CONSUMER.
        """
        call = self._call
        call.on_pause, call.on_resume = self._pause, self._resume
        call.on_retire = self._retire
        limits = inference_pb2.SessionLimits(max_requests=self._max_requests)
        retired = self._inference.draining or call.retired
        call.send(inference_pb2.SessionResponse(limits=limits, retired=retired))
        call.receive(self._take, self._half_close)
        try:
            await self._ended
        finally:
            self._ending = True
            tasks = [request.task for request in self._running if request.task is not None]
            why = call.failure
            if not isinstance(why, BatonError):
                why = BatonError(Reason.CANCELLED, "the client disconnected")
            for request in self._running:
                request.end(why)
            if tasks:
                await asyncio.wait(tasks)

    def drain(self) -> None:
        """End the call once no request is open; reject new ones."""
        self._end = stopping()
        self._half_close()

    # Messages from the client.

    def _take(self, message: inference_pb2.SessionRequest) -> None:
        if self._ended.done():
            return
        if len(message.cancels) > MAX_CANCELS:
            count = len(message.cancels)
            raise invalid_field(
                "cancels", f"has {count} ids; a message can have at most {MAX_CANCELS}"
            )
        self._message, self._begun = message, 0
        if len(message.starts) > BEGIN_PER_TURN:
            self._call.hold_requests()  # the client's next messages come after all of this one
        self._go_on()

    def _go_on(self) -> None:
        """Begin some of the message's requests in this turn; the rest in the next ones."""
        message, at = self._message, self._begun
        if message is None or self._ended.done():
            return
        self._begun += BEGIN_PER_TURN
        for start in message.starts[at : self._begun]:
            self._begin(start)
        if self._begun < len(message.starts):
            self._loop.call_soon(self._go_on)
            return
        self._message = None
        for request_id in message.cancels:
            if (request := self._open.get(request_id)) is not None:
                request.end(BatonError(Reason.CANCELLED, "the client cancelled the request"))
        if at:
            self._call.release_requests()
            self._finish_if_idle()

    def _begin(self, start: inference_pb2.SessionStart) -> None:
        if (opened := self._open.get(start.id)) is not None:
            again = f"id {start.id} was started again while its request was running"
            opened.end(BatonError(Reason.ALREADY_EXISTS, again, field="id"))
            return
        if self._paused:
            self._begun_while_paused += 1
            if self._begun_while_paused > self._max_requests:
                unread = "the client starts requests and does not read the events of others"
                self._finish(BatonError(Reason.SLOW_CONSUMER, unread))
                return
        request = RunningRequest(
            start, self._inference, self._admit, self._on_events, self._on_error
        )
        if self._end is not None:
            request.end(self._end)
        elif len(self._open) < self._max_requests:
            self._open[request.id] = request
        else:
            full = (
                f"{self._max_requests} requests are running on this session: open another session"
            )
            request.end(BatonError(Reason.NO_CAPACITY, full))
        if self._paused:
            request.pause()
        running = request.run(self._call.time_remaining())
        request.task = self._loop.create_task(running, context=self._context.copy())
        self._running.add(request)
        request.task.add_done_callback(partial(self._on_ended, request))

    def _half_close(self) -> None:
        self._ending = True
        self._finish_if_idle()

    # Events of requests.

    def _on_events(self, request: RunningRequest, events: list[Event]) -> None:
        self._outgoing.add(request.id, events)
        if events and type(events[-1]) is Finished:
            self._forget(request)
        self._flush_soon()

    def _on_error(self, request: RunningRequest, error: BatonError) -> None:
        self._outgoing.fail(request.id, error)
        self._forget(request)
        self._flush_soon()

    def _forget(self, request: RunningRequest) -> None:
        if self._open.get(request.id) is request:
            del self._open[request.id]

    def _on_ended(self, request: RunningRequest, _: object) -> None:
        self._running.discard(request)
        self._finish_if_idle()

    def _finish_if_idle(self) -> None:
        if self._ending and not self._running and self._message is None:
            self._flush()
            self._finish(self._end)

    def _finish(self, error: BatonError | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    # Messages to the client.

    def _retire(self) -> None:
        """Tell the client to begin new requests on another session."""
        if not self._ended.done():
            self._flush()
            self._call.send(inference_pb2.SessionResponse(retired=True))

    def _flush_soon(self) -> None:
        if self._outgoing.size >= MESSAGE_BYTES:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if not self._outgoing.size or self._ended.done():
            return
        outgoing, self._outgoing = self._outgoing, Outgoing()
        if not self._call.send(outgoing.message()):
            self._pause()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            for request in self._open.values():
                request.pause()

    def _resume(self) -> None:
        self._paused, self._begun_while_paused = False, 0
        for request in list(self._open.values()):
            if self._paused:  # paused again: the remaining ones come first next time
                return
            if self._open.pop(request.id, None) is request:
                self._open[request.id] = request
                request.resume()
