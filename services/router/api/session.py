"""One frontend's Place call: queries in, answers out, and the tickets that end with it."""

import time
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from opentelemetry.trace import SpanKind

from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from baton.rpc.protocol import check_hello, hello
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.streams.server import ServerStream
from baton.settings import RouterLimits
from baton.telemetry import tracing
from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.api.placer import Placer
from services.router.state.fleet import Fleet

log = get_logger(__name__)

MAX_ANSWERS_PER_MESSAGE = 64
_FLUSH_SECONDS = 1.0

Requests = AsyncIterator[router_pb2.PlaceRequest]


class PlaceSession:
    """Answers each query as it is read; answers come in the order of the queries.

    Owned by the call's handler. The call's end, however it comes, ends every ticket issued on it.

    Args:
        number: of the session, unique in this router.
        fleet: where tickets are.
        placer: decides.
        limits: how many answers may wait for a frontend, and for how long.
    """

    def __init__(self, number: int, fleet: Fleet, placer: Placer, limits: RouterLimits) -> None:
        self._number = number
        self._fleet = fleet
        self._placer = placer
        self._greeted = False
        self._queue: SendQueue[router_pb2.FrameFromRouter, router_pb2.PlaceResponse]
        self._queue = SendQueue(_pack)
        self._stream: ServerStream[router_pb2.PlaceRequest] = ServerStream(
            self._queue,
            self._handle,
            self._end,
            linger_seconds=_FLUSH_SECONDS,
            pause_at=limits.max_answers,
            stall_seconds=limits.stall_seconds,
        )

    async def serve(self, requests: Requests, context: Any) -> None:
        """Serve the call until the frontend ends it, or `drain`.

        Raises:
            BatonError: SLOW_CONSUMER, DRAINING or PROTOCOL_MISMATCH.
        """
        metrics.SESSIONS.inc()
        await self._stream.serve(requests, context)

    def drain(self, error: BatonError) -> None:
        """End the call with `error` once its answers are out, at the latest after a second."""
        self._stream.drain(error, _FLUSH_SECONDS)

    def _end(self) -> None:
        self._fleet.load_changed(self._fleet.tickets.end_session(self._number))
        metrics.SESSIONS.dec()

    def _handle(self, request: router_pb2.PlaceRequest) -> None:
        if not self._greeted:
            self._greeted = True
            check_hello(request.frames, "the frontend")
            self._queue.put(router_pb2.FrameFromRouter(hello=hello()))
        for frame in request.frames:
            if frame.HasField("query"):
                self._queue.put(self._answer(frame.query))
            elif frame.HasField("return_tickets"):
                returned = frame.return_tickets.tickets
                changed = self._fleet.tickets.return_tickets(self._number, returned)
                self._fleet.load_changed(changed)

    def _answer(self, query: router_pb2.PlaceQuery) -> router_pb2.FrameFromRouter:
        began = time.perf_counter()
        parent = tracing.extract(query.traceparent) if query.traceparent else None
        with tracing.tracer().start_as_current_span("place", parent, SpanKind.SERVER) as span:
            try:
                placement = self._placer.place(query, self._number, time.monotonic())
            except BatonError as error:
                model, outcome = "", error.reason.name.lower()  # it may be no name of a model
                answer = _failed(query, error)
                span.set_attribute("error.type", outcome)
            else:
                model = query.context.model
                outcome = "remote" if placement.HasField("prefill") else "local"
                answer = router_pb2.FrameFromRouter(placement=placement)
                _observe(query, placement)
                if span.is_recording():
                    span.set_attributes(_attributes(query, placement))
        metrics.PLACEMENTS.labels(model, outcome).inc()
        metrics.PLACE_SECONDS.observe(time.perf_counter() - began)
        return answer


def _pack(frames: deque[router_pb2.FrameFromRouter]) -> router_pb2.PlaceResponse:
    count = min(len(frames), MAX_ANSWERS_PER_MESSAGE)
    return router_pb2.PlaceResponse(frames=[frames.popleft() for _ in range(count)])


def _failed(query: router_pb2.PlaceQuery, error: BatonError) -> router_pb2.FrameFromRouter:
    log.info(
        "router.placement.failed",
        request_id=query.context.request_id,
        model=query.context.model,
        reason=error.reason.name,
        error=error.message,
    )
    return router_pb2.FrameFromRouter(
        failed=router_pb2.PlaceFailed(correlation_id=query.correlation_id, status=error.to_status())
    )


def _observe(query: router_pb2.PlaceQuery, placement: router_pb2.Placement) -> None:
    prediction = placement.prediction
    model = query.context.model
    metrics.PREDICTED_SECONDS.labels(model).observe(
        prediction.queue_seconds + prediction.transfer_seconds + prediction.prefill_seconds
    )
    metrics.PROMPT_TOKENS.labels(model, "cached").inc(prediction.cached_tokens)
    computed_tokens = query.prompt_tokens - prediction.cached_tokens
    metrics.PROMPT_TOKENS.labels(model, "computed").inc(computed_tokens)
    log.debug(
        "router.placement.made",
        request_id=query.context.request_id,
        ticket=placement.ticket,
        prefill=placement.prefill.instance_id,
        decode=placement.decode.instance_id,
        reason=prediction.reason,
    )


def _attributes(
    query: router_pb2.PlaceQuery, placement: router_pb2.Placement
) -> dict[str, str | int | float]:
    prediction = placement.prediction
    return {
        "baton.request_id": query.context.request_id,
        "gen_ai.request.model": query.context.model,
        "baton.ticket": placement.ticket,
        "baton.prefill": placement.prefill.instance_id,
        "baton.decode": placement.decode.instance_id,
        "baton.cached_tokens": prediction.cached_tokens,
        "baton.queue_seconds": prediction.queue_seconds,
        "baton.transfer_seconds": prediction.transfer_seconds,
        "baton.prefill_seconds": prediction.prefill_seconds,
        "baton.reason": prediction.reason,
    }
