"""Ways to share a limit: chunks of one owner, 1/N each, and one counter that all ask."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial

from baton.rendezvous import choose
from baton.tenancy.limits.limit_set import Refusal, Reservation
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.messages import Answer, Ask
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.spec import Limit, SubjectLimits
from bench.limits.world import World

FRONTENDS = 8
ROUTERS = ("router-0", "router-1", "router-2")
DETECT_SECONDS = (0.05, 0.3)
"""Until a process sees that a router is gone: uniform."""
WAIT_SECONDS = 0.25
"""A request waits so long for an answer, then it is refused."""
TICK_SECONDS = 0.25

Done = Callable[[bool], None]


class Burst(SubjectLimits):
    """Limits of a subject that allow less at once than a minute's worth."""

    def limits(self, _: int = 0, /) -> "list[Limit]":  # type: ignore[override]
        """Return them with a second's worth as their burst."""
        return [
            Limit(one.id, one.amount, max(1, one.amount // 60), one.version)
            for one in super().limits()
        ]


class Scheme(ABC):
    """Says which requests are admitted."""

    @abstractmethod
    def arrive(self, frontend: int, done: Done) -> None:
        """Decide on a request that reaches a frontend; `done` is called once."""


class Central(Scheme):
    """One counter, which every request asks."""

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
    """Prepaid chunks of the limit's owner: the objects that production runs."""

    def __init__(self, world: World, subject: SubjectLimits, routers: tuple[str, ...]) -> None:
        self._world = world
        self.routers = {name: LimitOwner(name) for name in routers}
        for owner in self.routers.values():
            owner.observe(routers, -3600.0)
        self.frontends = [Frontend(self, number, subject) for number in range(FRONTENDS)]
        for frontend in self.frontends:
            frontend.limiter.observe(routers, FRONTENDS, world.now)
            world.every(TICK_SECONDS, frontend.tick)

    @property
    def world(self) -> World:
        return self._world

    def arrive(self, frontend: int, done: Done) -> None:
        self.frontends[frontend].arrive(done)

    def deliver(self, frontend: "Frontend", router: str, ask: Ask) -> None:
        """Bring a question to a router, and its answer back; to one that is dead it is lost."""
        owner = self.routers.get(router)
        answer = None if owner is None else owner.answer(frontend.name, ask, self._world.now)
        if answer is not None:
            self._world.send(router, frontend.name, partial(frontend.receive, router, answer))

    def kill(self, limit: Limit) -> None:
        """Kill the limit's owner: everyone sees it a moment later, each at another one."""
        del self.routers[choose(limit.id.digest(), self.routers)]
        left = tuple(self.routers)
        for owner in self.routers.values():
            self._later(partial(self._observe, owner, left))
        for frontend in self.frontends:
            self._later(partial(frontend.observe, left))

    def _observe(self, owner: LimitOwner, routers: tuple[str, ...]) -> None:
        owner.observe(routers, self._world.now)

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
        """Decide on a request, at once or when answers have come."""
        self._try(self._scheme.world.now + WAIT_SECONDS, done)
        self._send()

    def receive(self, router: str, answer: Answer) -> None:
        """Take in an answer, and go on with what waited."""
        self.limiter.receive(router, answer, self._scheme.world.now)
        self._retry()

    def observe(self, routers: tuple[str, ...]) -> None:
        """See which routers are alive."""
        self.limiter.observe(routers, FRONTENDS, self._scheme.world.now)
        self._retry()

    def tick(self) -> None:
        """Let the limiter return what is idle."""
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
        if isinstance(outcome, Reservation):
            outcome.settle(1)
            done(True)
        elif isinstance(outcome, Refusal) or now >= until:
            done(False)
        else:
            self._waiting.append((until, done))

    def _send(self) -> None:
        for router, ask in self.limiter.take_messages(self._scheme.world.now):
            deliver = partial(self._scheme.deliver, self, router, ask)
            self._scheme.world.send(self.name, router, deliver)
