"""One request of a session, from its start to its last event."""

import asyncio
import math
from collections.abc import Callable

from opentelemetry import context as otel

from baton.errors import BatonError, Reason, invalid_field
from baton.request.stream_events import Event
from baton.telemetry import tracing
from baton.telemetry.logs import get_logger
from baton.tenancy.directory.principal import Principal
from baton.v1 import inference_pb2
from services.frontend.generation.generation import Generation
from services.frontend.generation.inference import Inference
from services.frontend.grpc.convert import generation_request
from services.frontend.requests.record import RequestRecord, begin, finish
from services.frontend.requests.request_id import identify

log = get_logger(__name__)

_OPERATIONS = {"generate": "text_completion", "chat": "chat"}


class RunningRequest:
    """Runs one request like a call: its own record, trace, id and deadline.

    Owned by its session, which calls `run` once, in a task with a separate context.
    """

    def __init__(
        self,
        start: inference_pb2.SessionStart,
        inference: Inference,
        admit: Callable[[], Principal],
        on_events: Callable[["RunningRequest", list[Event]], None],
        on_error: Callable[["RunningRequest", BatonError], None],
    ) -> None:
        """Prepare it; nothing happens before `run`.

        Args:
            start: the client's frame.
            inference: runs it.
            admit: returns the principal, or raises its rejection.
            on_events: called with the request and its next events; must not wait.
            on_error: called last, with the request and its error.
        """
        self.id = start.id
        self.task: asyncio.Task[None] | None = None
        """The task that runs it; set by the session."""
        self._start = start
        self._inference = inference
        self._admit = admit
        self._on_events = on_events
        self._on_error = on_error
        self._generation: Generation | None = None
        self._paused = False
        self._began = False
        self._why: BatonError | None = None
        """The error that it is ended with before its end."""

    async def run(self, seconds: float | None) -> None:
        """Run it to its end, which may have been reached already. Raises nothing.

        Args:
            seconds: the longest that it may take, in addition to its own deadline; None: no limit.
        """
        self._began = True
        record, error = begin("grpc"), self._why
        kind = self._start.WhichOneof("request")
        record.operation = _OPERATIONS.get(kind or "", record.operation)
        try:
            if error is None:
                await self._follow(record, seconds)
        except BatonError as raised:
            error = raised
        except asyncio.CancelledError:
            error = self._why or BatonError(Reason.CANCELLED, "the request was cancelled")
        except Exception:
            log.exception("session.request.failed")
            error = BatonError(Reason.INTERNAL, "internal error")
        if error is not None:
            self._on_error(self, error)
        record.error = error
        finish(record, "OK" if error is None else error.code.name)

    def end(self, error: BatonError) -> None:
        """Let it fail, unless it has failed already."""
        if self._why is None:
            self._why = error
            if self.task is not None and self._began:  # a task that is cancelled first never runs
                self.task.cancel()

    def pause(self) -> None:
        """Queue its events, within its buffer's bound: the client does not read."""
        self._paused = True
        if self._generation is not None:
            self._generation.buffer.pause()

    def resume(self) -> None:
        """Deliver its events again, queued ones first."""
        self._paused = False
        if self._generation is not None:
            self._generation.buffer.resume()

    async def _follow(self, record: RequestRecord, seconds: float | None) -> None:
        start = self._start
        if start.traceparent:
            otel.attach(tracing.extract(start.traceparent))
        request = start.chat if start.HasField("chat") else start.generate
        identity = identify(request.context.request_id)
        record.principal = self._admit()
        if start.WhichOneof("request") is None:
            raise invalid_field("request", "set one of generate and chat")
        asked = generation_request(request, identity, self._inference.limits.max_messages)
        generation = await self._inference.start(asked, record, _shorter(_timeout(start), seconds))
        self._generation = generation
        if self._paused:
            generation.buffer.pause()
        try:
            await generation.follow(self._take)
        except asyncio.CancelledError:
            if self._why is not None:
                generation.failed(self._why.reason)
            raise
        finally:
            generation.close()

    def _take(self, events: list[Event]) -> bool:
        self._on_events(self, events)
        return False


def _timeout(start: inference_pb2.SessionStart) -> float | None:
    seconds = start.timeout_seconds
    if not (seconds >= 0 and math.isfinite(seconds)):
        raise invalid_field("timeout_seconds", "must be a number of seconds, or 0 for the default")
    return seconds or None


def _shorter(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)
