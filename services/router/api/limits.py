"""The limits that this router owns: who the others are, and which frontends are there."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

from baton.cluster.discovery import Discovery
from baton.internal.v1 import router_pb2
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER
from baton.rendezvous import choose
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.wire import answer_to_proto, ask_from_proto
from services.router.metrics import LIMIT_BUCKETS

SWEEP_SECONDS = 1.0
FORGET_SECONDS = 3.0
"""A frontend without a Place call for so long is dead, and so is what it ran: one whose call broke
is back within half a second, or its process was noticed to be gone by then."""


class LimitBuckets:
    """Answers what frontends ask of limits. One per router, on the event loop.

    Routers go by incarnation here: one that starts anew has other limits, and has none before it
    sees itself in the cluster, or once it drains. Bounded by the limits that frontends use and by
    the frontends that there are.

    Args:
        incarnation: of this router.
        suspect: is told the instance id of a router that frontends no longer see, and this one
            does.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        incarnation: str,
        suspect: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._incarnation = incarnation
        self._suspect = suspect
        self._clock = clock
        self._owner = LimitOwner(incarnation)
        self._routers: Mapping[str, str] = {}
        """Instance ids by incarnation, of the routers that own limits."""
        self._calls: Counter[str] = Counter()
        """Open Place calls by frontend."""
        self._left: dict[str, float] = {}
        """When the last call of a frontend ended."""

    async def follow(self, discovery: Discovery) -> None:
        """Take in which routers there are, until cancelled."""
        async for change in discovery.changes():
            if change.instance.role == ROLE_ROUTER:
                routers = discovery.by_role(ROLE_ROUTER)
                self.observe({one.incarnation: one.id for one in routers if not one.draining})

    async def run_sweeps(self) -> None:
        """Forget buckets that nobody uses and frontends that are gone, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self.sweep()

    def observe(self, routers: Mapping[str, str]) -> None:
        """Take in the routers that own limits: instance ids by incarnation."""
        was, self._routers = self._incarnation in self._routers, routers
        if self._incarnation in routers:
            self._owner.observe(routers, self._clock())
        elif was:  # others own what it did, and grant it
            self._owner = LimitOwner(self._incarnation)

    def connected(self, frontend: str) -> None:
        """Note that a frontend says something of limits on a call, for the first time on it."""
        self._calls[frontend] += 1
        self._left.pop(frontend, None)

    def disconnected(self, frontend: str) -> None:
        """Note that a call of a frontend ended which was `connected`."""
        self._calls[frontend] -= 1
        if not self._calls[frontend]:
            del self._calls[frontend]
            self._left[frontend] = self._clock()

    def answer(self, asks: router_pb2.LimitAsks, response: router_pb2.PlaceResponse) -> None:
        """Add to a response the answers that there are to what a frontend asks.

        Raises:
            BatonError: INVALID_FIELD.
        """
        now, answers = self._clock(), router_pb2.LimitAnswers()
        for message in asks.asks:
            ask = ask_from_proto(message)
            if ask is None:
                continue
            answer = self._owner.answer(asks.frontend, ask, now)
            if answer is not None:
                answer_to_proto(answer, answers.answers.add())
            if ask.limit.id not in self._owner:
                self._suspect_owner(ask.limit.id.digest())
        if answers.answers:
            response.frames.add().limit_answers.CopyFrom(answers)

    def sweep(self) -> None:
        """Forget buckets that nobody uses, and frontends that are gone."""
        now = self._clock()
        for frontend in [one for one, at in self._left.items() if now - at >= FORGET_SECONDS]:
            del self._left[frontend]
            self._owner.drop(frontend)
        self._owner.sweep()
        LIMIT_BUCKETS.set(len(self._owner))

    def _suspect_owner(self, digest: bytes) -> None:
        """Have the owner probed that this router sees and the frontend that asks does not."""
        if self._incarnation in self._routers:
            self._suspect(self._routers[choose(digest, self._routers)])
