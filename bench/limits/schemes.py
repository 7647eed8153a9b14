"""Ways to share a limit: chunks of one owner, 1/N each, and one counter for all requests."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from baton.cluster.rendezvous import choose
from baton.tenancy.limits.limit_set import LimitRefusal, LimitReservation
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.spec import Limit, SubjectLimits
from bench.limits.world import World

FRONTENDS = 8
ROUTERS = ("router-0", "router-1", "router-2")
SERVE_SECONDS = 0.02
"""Interval at which a router checks whether waiting requests can be answered."""
DETECT_SECONDS = (0.05, 0.3)
"""Time until a process detects that a router is gone: uniform."""
WAIT_SECONDS = 0.25
"""Time that a request waits for a response before it is rejected."""
TICK_SECONDS = 0.25

Done = Callable[[bool], None]


class Burst(SubjectLimits):
    """Limits of a subject whose burst is smaller than a minute's amount."""

    def limits(self, _: int = 0, /) -> "list[Limit]":  # type: ignore[override]
        """Return the limits with a second's amount as their burst."""
        return [
            Limit(one.id, one.amount, max(1, one.amount // 60), one.version)
            for one in super().limits()
        ]


class Scheme(ABC):
    """Decides which requests are admitted."""

    @abstractmethod
    def arrive(self, frontend: int, done: Done) -> None:
        """Decide on a request that reaches a frontend; `done` is called once."""


class Central(Scheme):
    """One counter that every request uses."""

    def __init__(self, world: World, limit: Limit) -> None:
        self._world, self._limit = world, limit
        self._level, self._at = float(limit.burst), world.now

    def arrive(self, frontend: int, done: Done) -> None:
        name = f"frontend-{frontend}"

        def count() -> None:
            now = self._world.now
            filled = self._level + (now - self._at) * self._limit.per_minute / 60
            self._level, self._at = min(self._limit.burst, filled), now
            admitted = self._level >= 1
            self._level -= admitted
            self._world.send("counter", name, partial(done, admitted))

        self._world.send(name, "counter", count)


class Chunks(Scheme):
    """Prepaid chunks of the limit's owner: the objects of production."""

    def __init__(self, world: World, subject: SubjectLimits, routers: tuple[str, ...]) -> None:
        self._world = world
        self.routers = {name: LimitOwner(name) for name in routers}
        names = [f"frontend-{number}" for number in range(FRONTENDS)]
        for owner in self.routers.values():
            owner.observe(routers, -3600.0)
            owner.roll_call.observe(names)
        self.frontends = [Frontend(self, number, subject) for number in range(FRONTENDS)]
        for frontend in self.frontends:
            frontend.limiter.observe(routers, FRONTENDS, world.now)
            world.every(TICK_SECONDS, frontend.tick)

    @property
    def world(self) -> World:
        return self._world

    def arrive(self, frontend: int, done: Done) -> None:
        self.frontends[frontend].arrive(done)

    def deliver(self, frontend: "Frontend", router: str, asks: Sequence[Ask], era: int) -> None:
        """Deliver a frame to a router, and its responses back; a dead router loses it.

        Args:
            frontend: the sender.
            router: the router.
            asks: the frame's content.
            era: the era that it echoes; -1: it requests no roll call.
        """
        owner = self.routers.get(router)
        if owner is None:
            return
        now = self._world.now
        for ask in asks:
            answer = owner.answer(frontend.name, ask, now)
            if answer is not None:
                self._world.send(router, frontend.name, partial(frontend.receive, router, answer))
        if era >= 0 and owner.roll_call.heard(frontend.name, era, frontend.limiter.view):
            self._tell_era(router, frontend)
        self._serve(router)

    def _serve(self, router: str) -> None:
        """Answer waiting requests in a router, and repeat while some remain."""
        owner = self.routers.get(router)
        if owner is None or not owner.waiting:
            return
        owner.serve(self._world.now)
        for name, answer in owner.take_pushed():
            frontend = self.frontends[int(name.rpartition("-")[2])]
            self._world.send(router, name, partial(frontend.receive, router, answer))
        if owner.waiting:
            self._world.at(self._world.now + SERVE_SECONDS, partial(self._serve, router))

    def _tell_era(self, router: str, frontend: "Frontend") -> None:
        era = self.routers[router].roll_call.era
        self._world.send(router, frontend.name, partial(frontend.hear_era, router, era))

    def kill(self, limit: Limit) -> None:
        """Kill the limit's owner; other processes detect it later, each at its own time."""
        del self.routers[choose(limit.id.digest(), self.routers)]
        left = tuple(self.routers)
        for name in self.routers:
            self._later(partial(self._observe, name, left))
        for frontend in self.frontends:
            self._later(partial(frontend.observe, left))

    def _observe(self, router: str, routers: tuple[str, ...]) -> None:
        if self.routers[router].observe(routers, self._world.now):
            for frontend in self.frontends:
                self._tell_era(router, frontend)

    def _later(self, call: Callable[[], None]) -> None:
        self._world.at(self._world.now + self._world.draw.uniform(*DETECT_SECONDS), call)


class Frontend:
    """Drives a `Limiter` as the frontend's loop does."""

    def __init__(self, scheme: Chunks, number: int, subject: SubjectLimits) -> None:
        self.name = f"frontend-{number}"
        self.limiter = Limiter()
        self._scheme = scheme
        self._limits = self.limiter.limit_set([subject])
        self._waiting: deque[tuple[float, Done]] = deque()

    def arrive(self, done: Done) -> None:
        """Decide on a request, at once or when responses have come."""
        self._try(self._scheme.world.now + WAIT_SECONDS, done)
        self._send()

    def receive(self, router: str, answer: LimitGrant) -> None:
        """Process a response, and continue what waited."""
        self.limiter.receive(router, answer, self._scheme.world.now)
        self._retry()

    def hear_era(self, router: str, era: int) -> None:
        """Process a router's roll call."""
        self.limiter.hear_era(router, era, self._scheme.world.now)
        self._send()

    def observe(self, routers: tuple[str, ...]) -> None:
        """Update the set of live routers."""
        self.limiter.observe(routers, FRONTENDS, self._scheme.world.now)
        self._retry()

    def tick(self) -> None:
        """Let the limiter return idle chunks."""
        self.limiter.tick(self._scheme.world.now)
        self._retry()

    def _retry(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for until, done in waiting:
            self._try(until, done)
        self._send()

    def _try(self, until: float, done: Done) -> None:
        now = self._scheme.world.now
        outcome = self._limits.reserve(1, now)
        if isinstance(outcome, LimitReservation):
            outcome.settle(1)
            done(True)
        elif isinstance(outcome, LimitRefusal) or now >= until:
            done(False)
        else:
            self._waiting.append((until, done))

    def _send(self) -> None:
        frames: dict[str, list[Ask]] = {}
        for router, ask in self.limiter.take_messages(self._scheme.world.now):
            frames.setdefault(router, []).append(ask)
        eras = self.limiter.take_roll_calls()
        for router in sorted(frames.keys() | eras.keys()):
            asks, era = frames.get(router, []), eras.get(router, -1)
            deliver = partial(self._scheme.deliver, self, router, asks, era)
            self._scheme.world.send(self.name, router, deliver)
