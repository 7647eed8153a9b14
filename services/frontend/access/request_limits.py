"""Reserves each request's part of its key's limits, from this frontend's grants by routers."""

import asyncio
from collections.abc import Callable, Set
from contextlib import suppress
from functools import partial
from time import monotonic, time

from baton.cluster.members.discovery import Discovery
from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.internal.v1.cluster_pb2 import ROLE_FRONTEND, ROLE_ROUTER
from baton.rpc.timing.loop_watch import Timer
from baton.tenancy.directory.principal import Principal
from baton.tenancy.limits.budget.month import month_of
from baton.tenancy.limits.limit_set import CostHold, LimitRefusal, LimitReservation, LimitSet
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.wire import answer_from_proto, ask_to_proto
from services.frontend.access.key_limits import KeyLimitTable
from services.frontend.access.refusals import count_unanswered, refused
from services.frontend.placement.router_client import RouterClient
from services.frontend.placement.session import RouterSession

TICK_SECONDS = 0.25
WAIT_SECONDS = 1.0
"""Most seconds that a request waits for the routers that own its limits: a new owner first learns
all frontends' grants, and the owner of a budget has unused money returned by other frontends."""
CLOSE_SECONDS = 1.0
"""Most seconds to return unspent grants when this frontend stops."""
_ASKS = 1024
"""Most limit requests in one frame: about 100 KiB."""


class RequestLimits:
    """The limits of all keys, at this frontend. One per frontend, on its event loop.

    Reserving costs no message while this frontend has chunks of all limits that apply to a request;
    otherwise the request waits for the owners' answers. Messages to a router within one turn of the
    loop form one frame, on the open Place call, or a new one. Bounded: waiting requests by those
    that the frontend admits, the rest by the keys in use.

    Args:
        routers: reaches the owners of limits, and delivers their answers.
        incarnation: of this frontend.
        clock: a monotonic clock, in seconds.
        wall_clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        routers: RouterClient,
        incarnation: str,
        clock: Callable[[], float] = monotonic,
        wall_clock: Callable[[], float] = time,
    ) -> None:
        self._routers = routers
        self._incarnation = incarnation
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._wall_clock = wall_clock
        self._limiter = Limiter(month_of(wall_clock()))
        self._keys = KeyLimitTable(self._limiter)
        self.of = self._keys.of
        """Returns the limits of a principal, by its current records."""
        self._sessions: dict[str, RouterSession] = {}
        """The last session with each router that was sent a message."""
        self._closed: set[str] = set()
        """Routers whose sessions closed since the last tick."""
        self._waiting: dict[_WaitingRequest, None] = {}
        """Waiting requests, the oldest first."""
        self._flushing = False
        self._heard = asyncio.Event()
        """Set whenever a router answers."""
        routers.on_answers, routers.on_closed = self._receive, self._note_closed

    async def follow(self, discovery: Discovery) -> None:
        """Follow the live routers and frontends, until cancelled."""
        async for change in discovery.changes():
            if change.instance.role in (ROLE_ROUTER, ROLE_FRONTEND):
                routers, frontends = map(discovery.by_role, (ROLE_ROUTER, ROLE_FRONTEND))
                self.observe(
                    {one.incarnation for one in routers if not one.draining},
                    sum(not one.draining for one in frontends),
                )

    async def run_ticks(self) -> None:
        """Return unused grants and reconnect to routers whose calls broke, until cancelled."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            self.tick()

    def observe(self, routers: Set[str], frontends: int) -> None:
        """Set the incarnations of the routers that own limits, and the number of frontends."""
        self._limiter.observe(routers, frontends, self._clock())
        for gone in self._sessions.keys() - routers:
            del self._sessions[gone]
        for router in routers - self._sessions.keys():  # so that no request waits for a connection
            session = self._routers.session_to(router)
            if session is not None:
                self._sessions[router] = session
        self._retry()
        self._flush_soon()

    def tick(self) -> None:
        """Do the periodic work, every quarter of a second."""
        for router in self._closed:
            self._limiter.connected(router)  # messages in flight may be lost: they are sent again
        self._closed.clear()
        month = month_of(self._wall_clock())
        if month != self._limiter.month:
            self._limiter.month = month
            self._keys.forget()
        self._limiter.tick(self._clock())
        self._retry()
        self._flush_soon()

    def has_budget(self, principal: Principal) -> bool:
        """Return whether the spending of the key, its project or its tenant is limited."""
        counted = self.of(principal).counted
        return counted is not None and counted.budget is not None

    async def close(self) -> None:
        """Return unreserved budget grants, once no request runs any more."""
        self._limiter.give_back()
        self._flush_soon()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                while not self._limiter.all_returned:
                    self._heard.clear()
                    await self._heard.wait()

    async def reserve(
        self, limits: LimitSet, tokens: int, cost: int = 0, requests: int = 1
    ) -> LimitReservation:
        """Reserve a request's part of its limits, which `settle` ends.

        Args:
            limits: of its key.
            tokens: of its prompt, plus the most that it may generate.
            cost: the most that it may cost, in nano-dollars.
            requests: how many requests it counts as, as in `LimitSet.reserve`.

        Raises:
            BatonError: RATE_LIMITED or INSUFFICIENT_QUOTA: it exceeds a limit now; UNAVAILABLE: no
                router answered in time.
        """
        hold = limits.hold(cost)
        outcome: LimitReservation | LimitRefusal | None = None
        try:
            outcome = limits.reserve(tokens, self._clock(), hold, requests)
            self._flush_soon()
            if outcome is None:
                future: asyncio.Future[LimitReservation | LimitRefusal] = self._loop.create_future()
                waiting = _WaitingRequest(limits, tokens, hold, requests, future)
                outcome = await self._wait(waiting)
        finally:
            if hold is not None and not isinstance(outcome, LimitReservation):
                hold.settle(0)
                self._flush_soon()
        if isinstance(outcome, LimitRefusal):
            raise refused(outcome)
        return outcome

    def settle(self, reservation: LimitReservation, used: int, cost: int = 0) -> None:
        """Settle a reservation with the tokens and nano-dollars used. Idempotent."""
        reservation.settle(used, cost)
        self._flush_soon()

    def return_requests(self, limits: LimitSet, reservation: LimitReservation) -> None:
        """Return the requests of a reservation if none of them was started."""
        reservation.return_requests()
        limits.tell_requests()
        self._flush_soon()

    async def _wait(self, waiting: "_WaitingRequest") -> LimitReservation | LimitRefusal:
        self._waiting[waiting] = None
        timer = Timer(WAIT_SECONDS, partial(self._give_up, waiting))
        try:
            return await waiting.outcome
        except asyncio.CancelledError:
            self._decline(waiting)
            raise
        finally:
            timer.cancel()
            self._waiting.pop(waiting, None)

    def _decline(self, waiting: "_WaitingRequest") -> None:
        """Return a grant that arrived at the moment when the request was cancelled."""
        future = waiting.outcome
        if future.done() and not future.cancelled() and future.exception() is None:
            outcome = future.result()
            if isinstance(outcome, LimitReservation):
                self.settle(outcome, 0)

    def _give_up(self, waiting: "_WaitingRequest") -> None:
        if not waiting.outcome.done():
            count_unanswered()
            waiting.outcome.set_exception(
                BatonError(
                    Reason.UNAVAILABLE,
                    "the limits of the API key cannot be checked: no router is available; retry "
                    "later",
                    retry_after=1.0,
                )
            )

    def _retry(self) -> None:
        """Retry waiting requests, after anything that may have changed the outcome."""
        now = self._clock()
        for waiting in list(self._waiting):
            if waiting.outcome.done():
                continue
            outcome = waiting.limits.reserve(waiting.tokens, now, waiting.hold, waiting.requests)
            if outcome is not None:
                waiting.outcome.set_result(outcome)
                del self._waiting[waiting]

    def _receive(self, router: str, answers: router_pb2.LimitAnswers) -> None:
        now = self._clock()
        self._heard.set()
        for message in answers.answers:
            answer = answer_from_proto(message)
            if answer is not None:
                self._limiter.receive(router, answer, now)
        if answers.era:
            self._limiter.hear_era(router, answers.era, now)
        self._retry()
        self._flush_soon()

    def _note_closed(self, router: str) -> None:
        if router in self._sessions:
            self._closed.add(router)
            self._routers.suspect(router)

    def _flush_soon(self) -> None:
        if self._limiter.has_messages and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Send pending messages, one frame per router."""
        self._flushing = False
        frames: dict[str, router_pb2.LimitAsks] = {}
        for router, ask in self._limiter.take_messages(self._clock()):
            asks = frames.get(router)
            if asks is None:
                asks = frames[router] = router_pb2.LimitAsks(frontend=self._incarnation)
            ask_to_proto(ask, asks.asks.add())
            if len(asks.asks) >= _ASKS:
                self._send(router, frames.pop(router))
        for router, era in self._limiter.take_roll_calls().items():
            asks = frames.setdefault(router, router_pb2.LimitAsks(frontend=self._incarnation))
            asks.era, asks.view, asks.tells_recent = era, self._limiter.view, True
        for router, asks in frames.items():
            self._send(router, asks)

    def _send(self, router: str, asks: router_pb2.LimitAsks) -> None:
        session = self._routers.session_to(router)
        if session is None:
            return  # the router is gone: the new owner is addressed in the next turn
        session.send_asks(asks)
        if self._sessions.get(router) is not session:
            self._sessions[router] = session
            self._limiter.connected(router)
            self._flush_soon()


class _WaitingRequest:
    """A request that waits for routers' answers."""

    __slots__ = ("hold", "limits", "outcome", "requests", "tokens")

    def __init__(
        self,
        limits: LimitSet,
        tokens: int,
        hold: CostHold | None,
        requests: int,
        outcome: "asyncio.Future[LimitReservation | LimitRefusal]",
    ) -> None:
        self.limits = limits
        self.tokens = tokens
        self.hold = hold
        self.requests = requests
        self.outcome = outcome
