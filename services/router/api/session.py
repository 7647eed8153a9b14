"""One frontend's Place call: queries in, answers out, and the tickets that end with it."""

import time
from collections.abc import AsyncIterator, Callable

from opentelemetry.trace import SpanKind

from baton.errors import BatonError, invalid_field
from baton.internal.v1 import router_pb2
from baton.rpc.protocol import check_hello, hello
from baton.rpc.server.call import ServerCall
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.streams.server import ServerStream
from baton.settings import RouterLimits
from baton.telemetry import tracing
from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.api.limits import LimitBuckets
from services.router.api.placer import Placer
from services.router.metrics import PlacementMetrics
from services.router.placement.service import PlacementService
from services.router.state.executions import Claim, Executions

log = get_logger(__name__)

_FLUSH_SECONDS = 1.0

Requests = AsyncIterator[router_pb2.PlaceRequest]


class PlaceSession:
    """Answers each query as it is read; answers come in the order of the queries.

    Owned by the call's handler. The call's end, however it comes, ends every ticket issued on it.

    Args:
        number: of the session, unique in this router.
        placements: where tickets end.
        placer: answers queries.
        executions: of all sessions.
        on_superseded: is given the session and the number of an execution that another took over
            from.
        limits: how many answers may wait for a frontend, and for how long.
        buckets: of the limits that this router owns; None: nothing is answered of limits.
    """

    def __init__(
        self,
        number: int,
        placements: PlacementService,
        placer: Placer,
        executions: Executions,
        on_superseded: Callable[[int, int], None],
        limits: RouterLimits,
        buckets: LimitBuckets | None = None,
    ) -> None:
        self._number = number
        self._executions = executions
        self._on_superseded = on_superseded
        self._placements = placements
        self._placer = placer
        self._buckets = buckets
        self._frontend = ""
        """Incarnation of the frontend, once it has said something of limits."""
        self._greeted = False
        self._records: dict[str, PlacementMetrics] = {}
        """By model; those that have workers, or had them."""
        self._queue: SendQueue[router_pb2.PlaceResponse, router_pb2.PlaceResponse] = SendQueue()
        self._stream: ServerStream[router_pb2.PlaceRequest] = ServerStream(
            self._queue,
            self._handle,
            self._end,
            linger_seconds=_FLUSH_SECONDS,
            pause_at=limits.max_answers,
            stall_seconds=limits.stall_seconds,
        )

    async def serve(self, call: ServerCall) -> None:
        """Serve the call until the frontend ends it, or `drain`.

        Raises:
            BatonError: SLOW_CONSUMER, DRAINING or PROTOCOL_MISMATCH.
        """
        metrics.SESSIONS.inc()
        await self._stream.serve(call)

    def drain(self, error: BatonError) -> None:
        """End the call with `error` once its answers are out, at the latest after a second."""
        self._stream.drain(error, _FLUSH_SECONDS)

    def tell_superseded(self, execution: int) -> None:
        """Tell the frontend that another execution took over from this one."""
        frame = router_pb2.FrameFromRouter()
        frame.superseded.execution = execution
        self._queue.put(router_pb2.PlaceResponse(frames=[frame]))

    def _end(self) -> None:
        self._executions.end_session(self._number)
        if self._buckets is not None and self._frontend:
            self._buckets.disconnected(self._frontend, self._tell_limits)
        self._placements.end_session(self._number)
        metrics.SESSIONS.dec()

    def _handle(self, request: router_pb2.PlaceRequest) -> None:
        """Place the queries of a message in one go, and answer them with one message."""
        response = router_pb2.PlaceResponse()
        if not self._greeted:
            self._greeted = True
            check_hello(request.frames, "the frontend")
            response.frames.add().hello.CopyFrom(hello())
        for frame in request.frames:
            kind = frame.WhichOneof("frame")
            if kind == "query":
                self._answer(frame.query, response.frames.add())
            elif kind == "return_tickets":
                self._return(frame.return_tickets)
            elif kind == "limit_asks" and self._buckets is not None:
                self._answer_limits(self._buckets, frame.limit_asks, response)
        if response.frames:
            self._queue.put(response)

    def _answer_limits(
        self,
        buckets: LimitBuckets,
        asks: router_pb2.LimitAsks,
        response: router_pb2.PlaceResponse,
    ) -> None:
        if not asks.frontend or self._frontend not in ("", asks.frontend):
            raise invalid_field(
                "limit_asks.frontend", "not the incarnation that the call began with"
            )
        if not self._frontend:
            self._frontend = asks.frontend
            buckets.connected(asks.frontend, self._tell_limits)
        buckets.answer(asks, response)

    def _tell_limits(self, answers: router_pb2.LimitAnswers) -> None:
        frame = router_pb2.FrameFromRouter(limit_answers=answers)
        self._queue.put(router_pb2.PlaceResponse(frames=[frame]))

    def _return(self, returned: router_pb2.ReturnTickets) -> None:
        now, finished = time.monotonic(), set(returned.finished)
        for ticket in returned.tickets:
            self._executions.end_ticket(self._number, ticket, now, finished=ticket in finished)
        self._placements.return_tickets(self._number, returned.tickets)

    def _answer(self, query: router_pb2.PlaceQuery, answer: router_pb2.FrameFromRouter) -> None:
        began = time.perf_counter()
        if tracing.recording():
            parent = tracing.extract(query.traceparent) if query.traceparent else None
            with tracing.tracer().start_as_current_span("place", parent, SpanKind.SERVER) as span:
                self._place(query, answer)
                span.set_attributes(_attributes(query, answer))
        else:
            self._place(query, answer)
        metrics.PLACE_SECONDS.observe(time.perf_counter() - began)

    def _place(self, query: router_pb2.PlaceQuery, answer: router_pb2.FrameFromRouter) -> None:
        now = time.monotonic()
        claim = _claim(query)
        placement = answer.placement
        try:
            if claim is not None:
                self._executions.check(claim, now)
            self._placer.place(query, self._number, now, placement)
        except BatonError as error:
            _refuse(query, error, answer.failed)
            return
        if claim is not None:
            replaced = self._executions.begin(claim, self._number, placement.ticket)
            if replaced is not None:
                self._on_superseded(*replaced)
        model = query.context.model
        record = self._records.get(model)
        if record is None:
            record = self._records[model] = PlacementMetrics(model)
        record.count(query, placement)


def _claim(query: router_pb2.PlaceQuery) -> Claim | None:
    if not query.HasField("claim"):
        return None
    claim = query.claim
    return Claim(claim.key, claim.execution, claim.take_over)


def _refuse(
    query: router_pb2.PlaceQuery, error: BatonError, failed: router_pb2.PlaceFailed
) -> None:
    failed.correlation_id = query.correlation_id
    failed.status.CopyFrom(error.to_status())
    # Without the model: it may be no name of one.
    metrics.PLACEMENTS.labels("", error.reason.name.lower()).inc()
    log.info(
        "router.placement.failed",
        request_id=query.context.request_id,
        model=query.context.model,
        reason=error.reason.name,
        error=error.message,
    )


def _attributes(
    query: router_pb2.PlaceQuery, answer: router_pb2.FrameFromRouter
) -> dict[str, str | int | float]:
    if answer.HasField("failed"):
        return {"error.type": BatonError.from_status(answer.failed.status).reason.name.lower()}
    placement, prediction = answer.placement, answer.placement.prediction
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
