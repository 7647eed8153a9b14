"""Whatever is lost, late or said twice: never more than the limit, and nothing stays taken."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.tenancy.limits.limit_set import LimitReservation, LimitSet
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.messages import Ask, LimitGrant
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.spec import Limit, LimitId, Measure, Subject, SubjectLimits
from baton.tenancy.limits.term import ANSWER_SECONDS
from tests.support.examples import examples

FRONTENDS = 3
PLACES = 7
RATE, BURST = 48, 12
REQUESTS, TOKENS, AT_ONCE = (
    LimitId(Subject.KEY, "key_1", measure)
    for measure in (Measure.REQUESTS, Measure.TOKENS, Measure.AT_ONCE)
)


class Limited(SubjectLimits):
    """48 requests a second and 600 tokens; at one moment what comes in a quarter or half of it."""

    def limits(self, _: int = 0, /) -> "list[Limit]":  # type: ignore[override]
        return [
            Limit(REQUESTS, 60 * RATE, BURST),
            Limit(TOKENS, 36_000, 300),
            Limit(AT_ONCE, PLACES, PLACES),
        ]


@dataclass
class Message:
    """On its way between a frontend and a router."""

    frontend: int
    router: str
    content: list[Ask] | LimitGrant | int
    """What a frontend says, and what a router answers; a number: the era."""
    roll_call: tuple[int, bytes] | None = None
    """Era and view that the frontend says behind it."""


class AnyOrder(RuleBasedStateMachine):
    """Requests at three frontends, and messages that come in any order, twice or never."""

    kills = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0
        self.began = self.now
        self.names = iter(range(1000))
        self.messages: list[Message] = []
        self.routers: dict[str, LimitOwner] = {}
        self.limiters = [Limiter() for _ in range(FRONTENDS)]
        self.sets: list[LimitSet] = [
            one.limit_set([Limited(Subject.KEY, "key_1")]) for one in self.limiters
        ]
        self.start_router()
        self.start_router()
        self.running: list[tuple[int, LimitReservation]] = []
        self.used = 0
        self.requests = 0.0
        """Admitted, less what the limit lets through in the time since: a bucket that overflows."""

    def start_router(self) -> None:
        name = f"router-{next(self.names)}"
        self.routers[name] = LimitOwner(name)
        self.observe()

    def observe(self) -> None:
        for name, router in self.routers.items():
            router.roll_call.observe([f"frontend-{number}" for number in range(FRONTENDS)])
            if router.observe(list(self.routers), self.now):
                era = router.roll_call.era
                self.messages += [Message(number, name, era) for number in range(FRONTENDS)]
        for limiter in self.limiters:
            limiter.observe(list(self.routers), FRONTENDS, self.now)

    @rule(frontend=st.integers(0, FRONTENDS - 1), tokens=st.integers(1, 120), ordered=st.booleans())
    def request(self, frontend: int, tokens: int, ordered: bool) -> None:
        outcome = self.sets[frontend].reserve(tokens, self.now)
        if outcome is None and ordered:
            self.exchange(frontend)
            outcome = self.sets[frontend].reserve(tokens, self.now)
        if isinstance(outcome, LimitReservation):
            self.requests += 1
            self.running.append((frontend, outcome))

    @rule(frontend=st.integers(0, FRONTENDS - 1), count=st.integers(2, 2 * BURST))
    def short_requests(self, frontend: int, count: int) -> None:
        """One after the other, with all messages of them in order."""
        for _ in range(count):
            outcome = self.sets[frontend].reserve(10, self.now)
            if outcome is None:
                self.exchange(frontend)
                outcome = self.sets[frontend].reserve(10, self.now)
            if isinstance(outcome, LimitReservation):
                self.requests += 1
                self.used += 5
                outcome.settle(5)

    def exchange(self, frontend: int) -> None:
        before, self.messages = self.messages, []
        self.send(frontend)
        while self.messages:
            self.arrive(self.messages.pop(0))
        self.messages = before

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.running) - 1))
        _, reservation = self.running.pop(index)
        used = data.draw(st.integers(0, reservation.tokens))
        self.used += used
        reservation.settle(used)
        reservation.settle(0)

    @rule(frontend=st.integers(0, FRONTENDS - 1))
    def send(self, frontend: int) -> None:
        limiter = self.limiters[frontend]
        frames: dict[str, list[Ask]] = {}
        for router, ask in limiter.take_messages(self.now):
            frames.setdefault(router, []).append(ask)
        eras = limiter.take_roll_calls()
        for router in sorted(frames.keys() | eras.keys()):
            roll_call = (eras[router], limiter.view) if router in eras else None
            self.messages.append(Message(frontend, router, frames.get(router, []), roll_call))

    @precondition(lambda self: self.messages)
    @rule(data=st.data(), fate=st.sampled_from(("arrives", "arrives", "twice", "lost")))
    def deliver(self, data: st.DataObject, fate: str) -> None:
        index = data.draw(st.integers(0, len(self.messages) - 1))
        message = self.messages.pop(index)
        if fate == "twice":
            self.messages.append(message)
        if fate != "lost":
            self.arrive(message)

    def arrive(self, message: Message) -> None:
        content, name = message.content, f"frontend-{message.frontend}"
        if isinstance(content, LimitGrant):
            self.limiters[message.frontend].receive(message.router, content, self.now)
        elif isinstance(content, int):
            self.limiters[message.frontend].hear_era(message.router, content, self.now)
        elif message.router in self.routers:
            router = self.routers[message.router]
            for ask in content:
                answer = router.answer(name, ask, self.now)
                if answer is not None:
                    self.messages.append(Message(message.frontend, message.router, answer))
            if message.roll_call is not None and router.roll_call.heard(name, *message.roll_call):
                era = router.roll_call.era
                self.messages.append(Message(message.frontend, message.router, era))
            self.serve()

    def serve(self) -> None:
        """Let routers answer what waits."""
        for name, router in self.routers.items():
            router.serve(self.now)
            for frontend, answer in router.take_pushed():
                self.messages.append(Message(int(frontend[-1]), name, answer))

    @rule(seconds=st.sampled_from((0.001, 0.01, 0.1, 0.6, 2.0)))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.requests = max(0.0, self.requests - RATE * seconds)

    @rule(frontend=st.integers(0, FRONTENDS - 1))
    def tick(self, frontend: int) -> None:
        for router in self.routers.values():
            router.sweep(self.now)
        self.serve()
        self.limiters[frontend].tick(self.now)

    @rule(frontend=st.integers(0, FRONTENDS - 1))
    def reconnect(self, frontend: int) -> None:
        for router in self.routers:
            self.limiters[frontend].connected(router)

    @precondition(lambda self: self.kills and len(self.routers) < 3)
    @rule()
    def add_router(self) -> None:
        self.tick_all()
        self.start_router()

    @precondition(lambda self: self.kills and self.routers)
    @rule(data=st.data())
    def kill_router(self, data: st.DataObject) -> None:
        self.tick_all()
        del self.routers[data.draw(st.sampled_from(sorted(self.routers)))]
        self.observe()

    def tick_all(self) -> None:
        for limiter in self.limiters:
            limiter.tick(self.now)

    @invariant()
    def never_above(self) -> None:
        assert self.requests <= BURST + 1e-6

    @invariant()
    def never_more_at_once(self) -> None:
        if not self.kills:
            assert len(self.running) <= PLACES

    def teardown(self) -> None:
        for _, reservation in self.running:
            reservation.settle(reservation.tokens)
            self.used += reservation.tokens
        if not self.routers:
            self.start_router()
        for _ in range(20):
            self.now += ANSWER_SECONDS
            self.tick_all()
            for frontend in range(FRONTENDS):
                self.send(frontend)
            self.serve()
            while self.messages:
                self.arrive(self.messages.pop(0))
        assert self.used <= 300 + 600 * (self.now - self.began)
        busy = [share.limit.id for one in self.sets for share in one.shares if not share.idle]
        assert not busy, busy
        for router in self.routers.values():
            router.sweep(self.now)
            for limit_id, bucket in router._buckets.items():
                assert bucket.held == 0, limit_id


class AnyOrderAndDeaths(AnyOrder):
    """The same while routers come and go."""

    kills = True


@pytest.mark.parametrize("machine", [AnyOrder, AnyOrderAndDeaths])
def test_never_above_and_nothing_stays_taken(machine: type[AnyOrder]) -> None:
    case = machine.TestCase
    case.settings = settings(max_examples=examples(6), stateful_step_count=50, deadline=None)
    case("runTest").runTest()
