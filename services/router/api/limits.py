"""The limits that this router owns, the other owners, and the live frontends."""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping

from baton.cluster.members.discovery import Discovery
from baton.cluster.rendezvous import choose
from baton.internal.v1 import router_pb2
from baton.internal.v1.cluster_pb2 import ROLE_FRONTEND, ROLE_ROUTER
from baton.telemetry.logs import get_logger
from baton.tenancy.limits.budget.ledger import Ledger
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.wire import answer_to_proto, ask_from_proto
from services.router.metrics import LIMIT_BUCKETS

log = get_logger(__name__)

SWEEP_SECONDS = 1.0
SERVE_SECONDS = 0.02
"""Interval of checks whether waiting requests can be answered."""
FORGET_SECONDS = 3.0
"""Seconds without a Place call after which a frontend and what it ran count as dead: one whose call
broke is back within half a second, unless its process was found to have ended."""

Tell = Callable[[router_pb2.LimitAnswers], None]
"""Sends limit answers to a frontend on one of its calls."""


class LimitBuckets:
    """Answers frontends' limit requests. One per router, on the event loop.

    Routers are identified by incarnation here: a restarted one has other limits, and owns none
    before it sees itself in the cluster, or once it drains. Bounded by the limits in use and by the
    number of frontends.

    Args:
        incarnation: of this router.
        suspect: called with the instance id of a router that frontends no longer see, and this one
            does.
        clock: a monotonic clock, in seconds.
        wall_clock: seconds since the Unix epoch.
    """

    def __init__(
        self,
        incarnation: str,
        suspect: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._incarnation = incarnation
        self._suspect = suspect
        self._clock = clock
        self._wall_clock = wall_clock
        self._owner = LimitOwner(incarnation)
        self.ledger = Ledger(incarnation, self._owner)
        """The records of the budgets that this router owns."""
        self.on_unread: Callable[[], None] = lambda: None
        """Called when the record of a budget is to be read."""
        self._tell: dict[str, list[Tell]] = {}
        """Calls of each frontend, the latest last."""
        self._serving: asyncio.TimerHandle | None = None
        self._routers: Mapping[str, str] = {}
        """Instance ids by incarnation, of the routers that own limits."""
        self._missing: list[str] = []
        self._left: dict[str, float] = {}
        """When the last call of each frontend ended."""

    async def follow(self, discovery: Discovery) -> None:
        """Follow the live routers and frontends, until cancelled."""
        async for change in discovery.changes():
            if change.instance.role == ROLE_FRONTEND:
                frontends = discovery.by_role(ROLE_FRONTEND)
                self.observe_frontends({one.incarnation for one in frontends})
            if change.instance.role == ROLE_ROUTER:
                routers = discovery.by_role(ROLE_ROUTER)
                self.observe({one.incarnation: one.id for one in routers if not one.draining})

    async def run_sweeps(self) -> None:
        """Remove unused buckets and departed frontends, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep()

    def observe(self, routers: Mapping[str, str]) -> None:
        """Set the routers that own limits: instance ids by incarnation."""
        was, self._routers = self._incarnation in self._routers, routers
        if self._incarnation in routers:
            if self._owner.observe(routers, self._clock()):
                self.ledger.give_up()
                called = router_pb2.LimitAnswers(era=self._owner.roll_call.era)
                for frontend in self._tell:
                    self._tell_frontend(frontend, called)
        elif was:  # other routers own its limits now, and grant them
            alive, era = self._owner.roll_call.alive, self._owner.roll_call.era
            self._owner = LimitOwner(self._incarnation)
            self._owner.roll_call.observe(alive)
            self._owner.roll_call.era = era
            self.ledger.move_to(self._owner)

    def observe_frontends(self, frontends: Collection[str]) -> None:
        """Set the incarnations of the live frontends."""
        self._owner.roll_call.observe(frontends)
        self.serve()

    def connected(self, frontend: str, tell: Tell) -> None:
        """Record that a frontend sent its first message about limits on a call.

        Args:
            frontend: its incarnation.
            tell: sends to it on this call.
        """
        self._tell.setdefault(frontend, []).append(tell)
        self._left.pop(frontend, None)

    def disconnected(self, frontend: str, tell: Tell) -> None:
        """Record the end of a call that was `connected`."""
        calls = self._tell[frontend]
        calls.remove(tell)
        if not calls:
            del self._tell[frontend]
            self._left[frontend] = self._clock()

    def answer(self, asks: router_pb2.LimitAsks, response: router_pb2.PlaceResponse) -> None:
        """Add the available answers to a frontend's limit requests to a response.

        Raises:
            BatonError: INVALID_FIELD.
        """
        now, answers = self._clock(), router_pb2.LimitAnswers()
        self._owner.wall_seconds = self._wall_clock()
        for message in asks.asks:
            ask = ask_from_proto(message)
            if ask is None:
                continue
            answer = self._owner.answer(asks.frontend, ask, now)
            if answer is not None:
                answer_to_proto(answer, answers.answers.add())
            if ask.limit.id not in self._owner:
                self._suspect_owner(ask.limit.id.digest())
        roll_call = self._owner.roll_call
        if asks.view and roll_call.heard(
            asks.frontend, asks.era, asks.view, recent=asks.tells_recent
        ):
            answers.era = roll_call.era
        if answers.answers or answers.era:
            response.frames.add().limit_answers.CopyFrom(answers)
        self._push()
        if asks.view:
            self.serve()
        if self.ledger.has_unread:
            self.on_unread()

    def sweep(self) -> None:
        """Remove unused buckets, and departed frontends."""
        now = self._clock()
        for frontend in [one for one, at in self._left.items() if now - at >= FORGET_SECONDS]:
            del self._left[frontend]
            self._owner.drop(frontend)
        self._owner.sweep(now)
        self.ledger.sweep()
        missing = self._owner.roll_call.missing(now)
        if missing and missing != self._missing:
            log.info("limits.frontends.missing", peers=sorted(missing)[:16])
        self._missing = missing
        LIMIT_BUCKETS.set(len(self._owner))

    def serve(self) -> None:
        """Answer waiting requests, and run again while some remain."""
        if self._serving is not None:
            self._serving.cancel()
            self._serving = None
        if self._owner.waiting:
            self._owner.wall_seconds = self._wall_clock()
            self._owner.serve(self._clock())
            self._push()

    def _push(self) -> None:
        """Send frontends what changed without a request from them."""
        pushed: dict[str, router_pb2.LimitAnswers] = {}
        for frontend, answer in self._owner.take_pushed():
            answers = pushed.setdefault(frontend, router_pb2.LimitAnswers())
            answer_to_proto(answer, answers.answers.add())
        for frontend, answers in pushed.items():
            self._tell_frontend(frontend, answers)
        if self._owner.waiting and self._serving is None:
            loop = asyncio.get_running_loop()
            self._serving = loop.call_later(SERVE_SECONDS, self.serve)

    def _tell_frontend(self, frontend: str, answers: router_pb2.LimitAnswers) -> None:
        calls = self._tell.get(frontend)
        if calls:
            calls[-1](answers)

    def _suspect_owner(self, digest: bytes) -> None:
        """Have the owner probed, which this router sees and the requesting frontend does not."""
        if self._incarnation in self._routers:
            self._suspect(self._routers[choose(digest, self._routers)])
