"""What a frontend does as routers come and go, and where messages are lost."""

import pytest

from baton.cluster.rendezvous import choose
from baton.tenancy.limits.limit_set import LimitRefusal, LimitReservation, LimitSet
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.owner import SETTLE_SECONDS, LimitOwner
from baton.tenancy.limits.share import IDLE_SECONDS
from baton.tenancy.limits.spec import Limit, LimitId, Measure, Subject, SubjectLimits
from baton.tenancy.limits.term import ANSWER_SECONDS

KEY = SubjectLimits(Subject.KEY, "key_1", requests_per_minute=6000)
AT_ONCE = SubjectLimits(Subject.KEY, "key_1", requests_at_once=2)
CHUNK = 5


class Pair:
    """A frontend, and the routers that it sees."""

    def __init__(self, subject: SubjectLimits) -> None:
        self.now = 1000.0
        self.routers: dict[str, LimitOwner] = {}
        self.limiter = Limiter()
        self.see("router-0", since=0.0)
        self.limits: LimitSet = self.limiter.limit_set([subject])
        (self.share,) = self.limits.shares

    def see(self, *names: str, since: float | None = None) -> None:
        for name in set(names) - self.routers.keys():
            self.routers[name] = LimitOwner(name)
        self.routers = {name: self.routers[name] for name in names}
        for router in self.routers.values():
            router.observe(names, self.now if since is None else since)
        self.limiter.observe(names, 1, self.now)

    def call_roll(self) -> None:
        """Let the frontend answer the roll calls of all routers, as often as it takes."""
        for name, router in self.routers.items():
            router.roll_call.observe(["frontend"])
            self.limiter.hear_era(name, router.roll_call.era, self.now)
        self.exchange()
        for name, era in self.limiter.take_roll_calls().items():
            if name not in self.routers:
                continue
            assert not self.routers[name].roll_call.heard("frontend", era, self.limiter.view)

    def exchange(self, *, lose: bool = False) -> int:
        """Bring questions to routers and answers back, or lose the answers; return how many."""
        messages = self.limiter.take_messages(self.now)
        for name, ask in messages:
            answer = self.routers[name].answer("frontend", ask, self.now)
            if answer is not None and not lose:
                self.limiter.receive(name, answer, self.now)
        return len(messages)

    def reserve(self) -> LimitReservation | LimitRefusal | None:
        outcome = self.limits.reserve(1, self.now)
        if outcome is None:
            self.exchange()
            outcome = self.limits.reserve(1, self.now)
        return outcome

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.limiter.tick(self.now)

    @property
    def held(self) -> int:
        (router,) = self.routers.values()
        return sum(bucket.held for bucket in router._buckets.values())


def other_owner() -> str:
    """Return a router that owns the limit as soon as it is there."""
    digest = LimitId(Subject.KEY, "key_1", Measure.REQUESTS).digest()
    names = (f"router-{number}" for number in range(1, 100))
    return next(name for name in names if choose(digest, ["router-0", name]) == name)


def test_a_limit_has_one_owner_whoever_asks() -> None:
    names = [f"router-{number}" for number in range(5)]
    limits = [
        Limit(LimitId(Subject.KEY, f"key_{number}", Measure.TOKENS), 1, 1) for number in range(200)
    ]
    owners = [choose(limit.id.digest(), names) for limit in limits]
    assert owners == [choose(limit.id.digest(), reversed(names)) for limit in limits]
    assert set(owners) == set(names)
    left = [choose(limit.id.digest(), names[1:]) for limit in limits]
    assert all(was in (names[0], now) for was, now in zip(owners, left, strict=True))


def test_the_last_chunk_is_void_and_the_next_owners_bucket_fills() -> None:
    pair = Pair(KEY)
    assert isinstance(pair.reserve(), LimitReservation)
    assert pair.share.available == CHUNK
    pair.see("router-0", other_owner())
    assert pair.share.available == 0
    assert pair.reserve() is None, "it may be told what was granted lately"
    pair.wait(SETTLE_SECONDS)
    assert isinstance(pair.reserve(), LimitRefusal), "it is empty when it begins"
    pair.wait(0.5)
    assert isinstance(pair.reserve(), LimitReservation)


def test_a_part_that_came_without_a_router_is_void_with_one() -> None:
    pair = Pair(KEY)
    pair.see()
    pair.wait(10.0)
    assert isinstance(pair.reserve(), LimitReservation)
    assert pair.share.available > CHUNK
    pair.see("router-9")
    assert pair.share.available == 0


def taken(pair: Pair) -> int:
    """Return how many requests are admitted in one moment."""
    count = 0
    while isinstance(pair.reserve(), LimitReservation):
        count += 1
    return count


TEN = SubjectLimits(Subject.KEY, "key_1", requests_per_minute=10)


@pytest.mark.parametrize("used", [0, 4, 10])
@pytest.mark.parametrize("alone", [False, True])
def test_a_new_owner_knows_what_was_used_in_the_last_minute(used: int, alone: bool) -> None:
    pair = Pair(TEN)
    for _ in range(used):
        assert isinstance(pair.reserve(), LimitReservation)
    pair.wait(1.0)
    if alone:
        pair.see()
        assert taken(pair) == 10 - used, "of one frontend, the part is all"
        pair.wait(5.0)
    pair.see("router-9")
    pair.call_roll()
    assert taken(pair) == (0 if alone else 10 - used)
    pair.wait(66.0)
    pair.see("router-8")
    pair.call_roll()
    assert taken(pair) == 10


def test_what_is_not_used_without_a_router_is_not_held_against_it() -> None:
    pair = Pair(TEN)
    pair.see()
    assert isinstance(pair.reserve(), LimitReservation)
    pair.see("router-9")
    pair.call_roll()
    assert taken(pair) == 9


def test_what_went_back_is_not_held_against_a_key() -> None:
    tokens = SubjectLimits(Subject.KEY, "key_1", tokens_per_minute=100)
    pair = Pair(tokens)
    assert pair.limits.reserve(90, pair.now) is None
    pair.exchange()
    reservation = pair.limits.reserve(90, pair.now)
    assert isinstance(reservation, LimitReservation)
    pair.wait(50.0)
    reservation.settle(20)
    pair.wait(0.25)
    pair.see("router-9")
    pair.call_roll()
    assert pair.limits.reserve(81, pair.now) is None
    pair.exchange()
    assert isinstance(pair.limits.reserve(81, pair.now), LimitRefusal)
    pair.wait(60.0)
    assert pair.limits.reserve(80, pair.now) is None
    pair.exchange()
    assert isinstance(pair.limits.reserve(80, pair.now), LimitReservation)


def test_a_lost_answer_is_made_good_by_the_next() -> None:
    pair = Pair(KEY)
    assert pair.limits.reserve(1, pair.now) is None
    pair.exchange(lose=True)
    assert pair.held == 1 + CHUNK
    assert pair.limits.reserve(1, pair.now) is None, "it waits for the answer"
    pair.wait(ANSWER_SECONDS)
    pair.exchange()
    assert isinstance(pair.limits.reserve(1, pair.now), LimitReservation)
    assert pair.held >= pair.share.available


def test_what_is_idle_goes_back_though_a_message_is_lost() -> None:
    pair = Pair(KEY)
    assert isinstance(pair.reserve(), LimitReservation)
    pair.wait(0.25)
    pair.wait(IDLE_SECONDS)
    lost = pair.limiter.take_messages(pair.now)
    assert [ask.confirm for _, ask in lost] == [True]
    assert pair.held == CHUNK + 1
    pair.limiter.connected("router-0")
    pair.exchange()
    pair.wait(0.25)
    assert pair.held == 0
    assert pair.exchange() == 0


def test_an_answer_of_an_earlier_term_grants_nothing() -> None:
    pair = Pair(KEY)
    assert pair.limits.reserve(1, pair.now) is None
    ((name, ask),) = pair.limiter.take_messages(pair.now)
    late = pair.routers[name].answer("frontend", ask, pair.now)
    assert late is not None
    pair.see()
    pair.see("router-0")
    assert isinstance(pair.limits.reserve(1, pair.now), LimitRefusal | None)
    pair.limiter.receive("router-0", late, pair.now)
    assert pair.share.available == 0
    pair.exchange()
    assert pair.held == pair.share.available


def test_a_new_owner_learns_at_once_what_runs() -> None:
    pair = Pair(AT_ONCE)
    running = [pair.reserve(), pair.reserve()]
    pair.see("router-9")
    pair.exchange()
    assert pair.held == 2
    pair.wait(SETTLE_SECONDS)
    assert isinstance(pair.reserve(), LimitRefusal)
    first = running[0]
    assert isinstance(first, LimitReservation)
    first.settle(1)
    pair.exchange()
    pair.wait(0.1)
    assert isinstance(pair.reserve(), LimitReservation)


def test_before_it_knows_the_cluster_it_has_nothing() -> None:
    limits = Limiter().limit_set([KEY])
    assert isinstance(limits.reserve(1, 0.0), LimitRefusal)


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_retry_after_is_when_it_succeeds(seconds: float) -> None:
    slow = SubjectLimits(Subject.KEY, "key_1", requests_per_minute=round(60 / seconds))
    pair = Pair(slow)
    while isinstance(outcome := pair.reserve(), LimitReservation):
        pass
    assert isinstance(outcome, LimitRefusal)
    assert outcome.retry_after == pytest.approx(seconds)
    pair.wait(seconds)
    assert isinstance(pair.reserve(), LimitReservation)


def test_a_late_grant_to_a_share_that_holds_nothing_goes_back() -> None:
    pair = Pair(AT_ONCE)
    other = next(
        name
        for name in map("router-{}".format, range(1, 100))
        if choose(pair.share.digest, ("router-0", name)) == name
    )
    assert pair.limits.reserve(1, pair.now) is None
    ((name, ask),) = pair.limiter.take_messages(pair.now)
    assert name == "router-0"
    first = pair.routers["router-0"]
    pair.see("router-0", other)
    assert pair.share.owner == other
    pair.wait(0.0)  # the share holds nothing, and is forgotten until it is used
    pair.see("router-0")
    assert pair.routers["router-0"] is first
    pair.now += SETTLE_SECONDS
    answer = first.answer("frontend", ask, pair.now)
    assert answer is not None and answer.granted == 1
    assert pair.held == 1
    pair.limiter.receive("router-0", answer, pair.now)
    pair.exchange()
    assert pair.held == 0
