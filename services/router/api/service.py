"""RouterService: one Place stream per frontend."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from baton.telemetry import tracing
from baton.telemetry.logs import get_logger
from services.router import metrics
from services.router.api.placer import Placer, Replication
from services.router.policy.costs import Policy
from services.router.policy.placement import DEFAULT_POLICY
from services.router.state.fleet import Fleet

log = get_logger(__name__)

SERVICE_NAME = "baton.internal.v1.RouterService"
MAX_ANSWERS = 1024
"""Answers that a session keeps for its reader. Beyond, no more of its queries are read."""
MAX_ANSWERS_PER_MESSAGE = 64
STALL_SECONDS = 30.0
_FLUSH_SECONDS = 1.0

Requests = AsyncIterator[router_pb2.PlaceRequest]
Answers = asyncio.Queue[router_pb2.FrameFromRouter]


class RouterService(RouterServiceServicer):
    """Answers each query as it is read; answers of one stream come in the order of its queries.

    Args:
        fleet: where to place.
        policy: constants of the cost model.
        stall_seconds: a frontend that takes no answer for so long is cut off.
        replication: as `Placer` takes it.
    """

    def __init__(
        self,
        fleet: Fleet,
        policy: Policy = DEFAULT_POLICY,
        stall_seconds: float = STALL_SECONDS,
        replication: Replication | None = None,
    ) -> None:
        self._fleet = fleet
        self._stall_seconds = stall_seconds
        self._placer = Placer(fleet, policy, replication)
        self._sessions = itertools.count(1)
        self._stopping = asyncio.Event()
        self._open = False

    def register(self, server: grpc.aio.Server) -> None:
        """Add the service to a server: `Server.add(service.register, SERVICE_NAME)`."""
        add_RouterServiceServicer_to_server(self, server)

    def open(self) -> None:
        """Begin to serve: the cluster is known. Streams that came before were refused."""
        self._open = True

    def stop(self) -> None:
        """End every Place stream with DRAINING once its answers are out, and every later one."""
        self._stopping.set()

    async def Place(  # type: ignore[override]  # noqa: N802  # stubs know no handler that writes
        self, request_iterator: Requests, context: Any
    ) -> None:
        """Serve one session until the frontend ends it or the router stops.

        Raises:
            BatonError: UNAVAILABLE before `open`, DRAINING after `stop`, or SLOW_CONSUMER.
        """
        if not self._open:
            raise BatonError(
                Reason.UNAVAILABLE, "this router does not know the cluster yet", retry_after=0.5
            )
        session = next(self._sessions)
        answers: Answers = asyncio.Queue(MAX_ANSWERS)
        reader = asyncio.create_task(self._read(session, request_iterator, answers))
        writer = asyncio.create_task(_write(answers, context))
        stop = asyncio.create_task(self._stopping.wait())
        flush = asyncio.create_task(_flush(answers, (reader, stop)))
        tasks = (reader, writer, stop, flush)
        metrics.SESSIONS.inc()
        try:
            await asyncio.wait((writer, flush), return_when=asyncio.FIRST_COMPLETED)
            for ended in (reader, writer):
                if ended.done():
                    ended.result()
            if stop.done():
                raise BatonError(Reason.DRAINING, "this router is stopping", retry_after=0.1)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._fleet.load_changed(self._fleet.tickets.end_session(session))
            metrics.SESSIONS.dec()

    async def _read(self, session: int, requests: Requests, answers: Answers) -> None:
        async for request in requests:
            for frame in request.frames:
                if frame.HasField("query"):
                    answer = self._answer(frame.query, session)
                    if answers.full():
                        await self._put_late(answers, answer)
                    else:
                        answers.put_nowait(answer)
                elif frame.HasField("return_tickets"):
                    returned = frame.return_tickets.tickets
                    changed = self._fleet.tickets.return_tickets(session, returned)
                    self._fleet.load_changed(changed)

    async def _put_late(self, answers: Answers, answer: router_pb2.FrameFromRouter) -> None:
        try:
            async with asyncio.timeout(self._stall_seconds):
                await answers.put(answer)
        except TimeoutError as error:
            raise BatonError(
                Reason.SLOW_CONSUMER, f"no answer was read for {self._stall_seconds:g} s"
            ) from error

    def _answer(self, query: router_pb2.PlaceQuery, session: int) -> router_pb2.FrameFromRouter:
        began = time.perf_counter()
        parent = tracing.extract(query.traceparent) if query.traceparent else None
        with tracing.tracer().start_as_current_span("place", context=parent) as span:
            try:
                placement = self._placer.place(query, session, time.monotonic())
            except BatonError as error:
                outcome = error.reason.name.lower()
                response = _failed(query, error)
                span.set_attribute("error.type", outcome)
            else:
                outcome = "remote" if placement.HasField("prefill") else "local"
                response = router_pb2.FrameFromRouter(placement=placement)
                _observe(query, placement)
                if span.is_recording():
                    span.set_attributes(_attributes(query, placement))
        metrics.PLACEMENTS.labels(outcome).inc()
        metrics.PLACE_SECONDS.observe(time.perf_counter() - began)
        return response


async def _write(answers: Answers, context: Any) -> None:
    while True:
        frames = [await answers.get()]
        while len(frames) < MAX_ANSWERS_PER_MESSAGE and not answers.empty():
            frames.append(answers.get_nowait())
        await context.write(router_pb2.PlaceResponse(frames=frames))
        for _ in frames:
            answers.task_done()


async def _flush(answers: Answers, enders: tuple[asyncio.Task[Any], ...]) -> None:
    """Wait until the session is to end, then a moment for its answers to go out."""
    await asyncio.wait(enders, return_when=asyncio.FIRST_COMPLETED)
    try:
        async with asyncio.timeout(_FLUSH_SECONDS):
            await answers.join()
    except TimeoutError:
        log.info("router.answers.dropped", answers=answers.qsize())


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
    metrics.PREDICTED_SECONDS.observe(
        prediction.queue_seconds + prediction.transfer_seconds + prediction.prefill_seconds
    )
    metrics.PROMPT_TOKENS.labels("cached").inc(prediction.cached_tokens)
    metrics.PROMPT_TOKENS.labels("computed").inc(query.prompt_tokens - prediction.cached_tokens)
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
