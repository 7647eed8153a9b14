"""A router that places as the test decides, counts its tickets, and owns all limits."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any

from baton.errors import BatonError
from baton.internal.v1 import router_pb2
from baton.internal.v1.router_pb2_grpc import (
    RouterServiceServicer,
    add_RouterServiceServicer_to_server,
)
from baton.rpc.protocol import hello
from baton.tenancy.limits.budget.ledger import Ledger
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.wire import answer_to_proto, ask_from_proto
from tests.support.doubles.worker import frames_of


class ScriptedRouter(RouterServiceServicer):
    """Places as `place` decides; `tickets` are those issued and not returned.

    Args:
        incarnation: identifies the router to frontends.
    """

    def __init__(self, incarnation: str = "router") -> None:
        self.place: Callable[[router_pb2.PlaceQuery], router_pb2.Placement | BatonError]
        self.queries: list[router_pb2.PlaceQuery] = []
        self.tickets: set[str] = set()
        self.kept: list[router_pb2.KeepRequest] = []
        """Ended requests that it was to keep."""
        self.answers = asyncio.Event()
        """The router answers while this is set."""
        self.answers.set()
        self.waiting = 0
        """Received queries that wait for `answers`."""
        self.limits = LimitOwner(incarnation)
        """Owner of all limits since long ago: their buckets are full."""
        self.limits.observe([incarnation], -3600.0)
        self._ledger = Ledger(incarnation, self.limits)
        self.answers_limits = True
        """Whether requests for limits are answered; otherwise they are lost."""
        self.waits: dict[str, float] = {}
        """Predicted seconds that new requests wait, by model."""
        self._contexts: list[Any] = []
        self.hello = hello()
        """The first message that it sends."""

    def supersede(self, execution: int) -> None:
        """Notify its frontends that another execution took over."""
        frame = router_pb2.FrameFromRouter()
        frame.superseded.execution = execution
        for context in self._contexts:
            context.send(router_pb2.PlaceResponse(frames=[frame]))

    def register(self, server: Any) -> None:
        add_RouterServiceServicer_to_server(self, server)

    async def Outlook(self, request: Any, context: Any) -> router_pb2.OutlookResponse:  # noqa: N802
        seconds = self.waits.get(request.model, 0.0)
        return router_pb2.OutlookResponse(waits=seconds > 0, wait_seconds=seconds)

    async def Place(self, requests: Any, context: Any) -> None:  # noqa: N802
        mine: set[str] = set()
        self._contexts.append(context)
        try:
            async for frame in frames_of(requests):
                if frame.HasField("hello"):
                    greeting = router_pb2.FrameFromRouter(hello=self.hello)
                    await context.write(router_pb2.PlaceResponse(frames=[greeting]))
                elif frame.HasField("return_tickets"):
                    for ticket in frame.return_tickets.tickets:
                        mine.remove(ticket)
                        self.tickets.remove(ticket)
                elif frame.HasField("keep_request"):
                    self.kept.append(frame.keep_request)
                elif frame.HasField("limit_asks"):
                    if self.answers_limits:
                        context.send(self._answer_limits(frame.limit_asks))
                elif frame.HasField("query"):
                    self.waiting += 1
                    await self.answers.wait()
                    self.waiting -= 1
                    self.queries.append(frame.query)
                    answer = self._answer(frame.query, mine)
                    await context.write(router_pb2.PlaceResponse(frames=[answer]))
        finally:
            self.tickets -= mine
            self._contexts.remove(context)

    def _answer_limits(self, asks: router_pb2.LimitAsks) -> router_pb2.PlaceResponse:
        """Answer requests for limits; nothing was spent of budgets before."""
        frame = router_pb2.FrameFromRouter(limit_answers=router_pb2.LimitAnswers())
        now, roll_call = time.monotonic(), self.limits.roll_call
        if asks.view and roll_call.heard(asks.frontend, asks.era, asks.view):
            frame.limit_answers.era = roll_call.era
        for message in asks.asks:
            ask = ask_from_proto(message)
            assert ask is not None
            answer = self.limits.answer(asks.frontend, ask, now)
            if answer is not None:
                answer_to_proto(answer, frame.limit_answers.answers.add())
        for limit_id in self._ledger.unread(1000):
            self._ledger.was_read(limit_id, None)
        self.limits.serve(now)
        for frontend, answer in self.limits.take_pushed():
            if frontend == asks.frontend:
                answer_to_proto(answer, frame.limit_answers.answers.add())
        return router_pb2.PlaceResponse(frames=[frame])

    def _answer(self, query: router_pb2.PlaceQuery, mine: set[str]) -> router_pb2.FrameFromRouter:
        placed = self.place(query)
        number = query.correlation_id
        if isinstance(placed, BatonError):
            failed = router_pb2.PlaceFailed(correlation_id=number, status=placed.to_status())
            return router_pb2.FrameFromRouter(failed=failed)
        placed.correlation_id = number
        placed.ticket = f"t-{secrets.token_hex(4)}"
        mine.add(placed.ticket)
        self.tickets.add(placed.ticket)
        return router_pb2.FrameFromRouter(placement=placed)
