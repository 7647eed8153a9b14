"""A request takes of every limit or of none, and gives back what it did not use."""

import pytest

from baton.tenancy.limits.limit_set import LimitRefusal, LimitReservation, LimitSet
from baton.tenancy.limits.limiter import Limiter
from baton.tenancy.limits.owner import LimitOwner
from baton.tenancy.limits.spec import (
    CONTEXT_TOKENS,
    LimitId,
    Measure,
    Subject,
    SubjectLimits,
    context_tokens,
)

KEY = SubjectLimits(Subject.KEY, "key_1", requests_per_minute=60, tokens_per_minute=6000)
PROJECT = SubjectLimits(Subject.PROJECT, "proj_1", requests_at_once=2, title="search")
TENANT = SubjectLimits(Subject.TENANT, "acme", tokens_per_minute=5000)


class Cluster:
    """One router that has been there for long, and frontends; messages arrive at once."""

    def __init__(self, frontends: int = 1) -> None:
        self.now = 1000.0
        self.owner = LimitOwner("router")
        self.owner.observe(["router"], 0.0)
        self.limiters = [Limiter() for _ in range(frontends)]
        for limiter in self.limiters:
            limiter.observe(["router"], frontends, self.now)

    def limits(self, *subjects: SubjectLimits, frontend: int = 0) -> LimitSet:
        return self.limiters[frontend].limit_set(subjects)

    def exchange(self) -> None:
        for number, limiter in enumerate(self.limiters):
            for router, ask in limiter.take_messages(self.now):
                answer = self.owner.answer(f"frontend-{number}", ask, self.now)
                if answer is not None:
                    limiter.receive(router, answer, self.now)

    def tick(self) -> None:
        for limiter in self.limiters:
            limiter.tick(self.now)
        self.exchange()

    def reserve(self, limits: LimitSet, tokens: int = 100) -> LimitReservation | LimitRefusal:
        for _ in range(3):
            outcome = limits.reserve(tokens, self.now)
            if outcome is not None:
                return outcome
            self.exchange()
        raise AssertionError("neither admitted nor refused")

    def admit(self, limits: LimitSet, tokens: int = 100) -> LimitReservation:
        outcome = self.reserve(limits, tokens)
        assert isinstance(outcome, LimitReservation), outcome
        return outcome

    def refuse(self, limits: LimitSet, tokens: int = 100) -> LimitRefusal:
        outcome = self.reserve(limits, tokens)
        assert isinstance(outcome, LimitRefusal)
        return outcome


def test_the_first_request_asks_all_owners_at_once() -> None:
    cluster = Cluster()
    limits = cluster.limits(KEY, PROJECT, TENANT)
    assert limits.reserve(100, cluster.now) is None
    assert len(cluster.limiters[0].take_messages(cluster.now)) == 4


def test_one_that_refuses_leaves_the_others_as_they_are() -> None:
    cluster = Cluster()
    limits = cluster.limits(KEY, PROJECT, TENANT)
    running = [cluster.admit(limits), cluster.admit(limits)]
    before = [share.available for share in limits.requests + limits.tokens]
    refusal = cluster.refuse(limits)
    assert refusal.limit.id == LimitId(Subject.PROJECT, "proj_1", Measure.AT_ONCE)
    assert refusal.sentence == "project 'search' (proj_1) is limited to 2 concurrent requests"
    after = [share.available for share in limits.requests + limits.tokens]
    assert all(one >= other for one, other in zip(after, before, strict=True))
    running[0].settle(100)
    cluster.exchange()
    cluster.now += 1.0
    cluster.admit(limits)


def test_a_refusal_says_whose_limit_and_how_long() -> None:
    cluster = Cluster()
    limits = cluster.limits(KEY, TENANT)
    cluster.admit(limits, 5000)
    refusal = cluster.refuse(limits, 1000)
    assert refusal.limit.id == LimitId(Subject.TENANT, "acme", Measure.TOKENS)
    assert refusal.retry_after == pytest.approx(1000 * 60 / 5000, abs=0.1)
    assert refusal.sentence == "tenant 'acme' is limited to 5000 tokens per minute"


def test_what_can_never_be_is_not_asked_for() -> None:
    cluster = Cluster()
    limits = cluster.limits(KEY, TENANT)
    outcome = limits.reserve(5001, cluster.now)
    assert isinstance(outcome, LimitRefusal)
    assert outcome.retry_after is None
    assert "this request needs 5001: shorten the request" in outcome.sentence


def test_unused_tokens_go_back_once() -> None:
    cluster = Cluster()
    limits = cluster.limits(TENANT)
    first, _ = cluster.admit(limits, 2500), cluster.admit(limits, 2500)
    bucket = cluster.owner._buckets[limits.tokens[0].limit.id]
    first.settle(2400)
    first.settle(0)
    cluster.tick()
    cluster.tick()
    assert bucket.free + bucket.held == 100


def test_what_an_owner_before_granted_does_not_go_to_the_next() -> None:
    cluster = Cluster()
    limits = cluster.limits(TENANT)
    running = cluster.admit(limits, 2500)
    cluster.owner = LimitOwner("another")
    cluster.owner.observe(["another"], 0.0)
    cluster.limiters[0].observe(["another"], 1, cluster.now)
    cluster.admit(limits, 1000)
    bucket = cluster.owner._buckets[limits.tokens[0].limit.id]
    running.settle(0)
    cluster.now += 1.0
    cluster.tick()
    cluster.now += 0.25
    cluster.tick()
    assert bucket.held <= 4
    assert bucket.free <= 5000 - 1000 + 5000 / 60 * 1.25


def test_what_one_frontend_returned_another_one_uses() -> None:
    cluster = Cluster(frontends=2)
    first, second = cluster.limits(TENANT), cluster.limits(TENANT, frontend=1)
    cluster.admit(first, 5000).settle(10)
    cluster.tick()
    cluster.admit(second, 4900)


def test_what_one_frontend_used_up_is_not_taken_to_be_there_for_ever() -> None:
    cluster = Cluster(frontends=2)
    first, second = cluster.limits(TENANT), cluster.limits(TENANT, frontend=1)
    cluster.admit(first, 5000).settle(5000)
    for _ in range(6):
        cluster.now += 0.25
        cluster.tick()
    cluster.now += 60.0
    cluster.admit(second, 5000)
    assert cluster.owner._buckets[first.tokens[0].limit.id].held == 5000


def test_headroom_is_that_of_the_tightest() -> None:
    cluster = Cluster()
    limits = cluster.limits(KEY, TENANT)
    cluster.admit(limits, 1000)
    headroom = limits.headroom(cluster.now)
    tokens = headroom[Measure.TOKENS]
    assert (tokens.limit, tokens.remaining) == (5000, 4000)
    assert tokens.reset_seconds == pytest.approx(12.0)
    assert headroom[Measure.REQUESTS].remaining == 59


def test_a_changed_limit_is_in_force_with_the_next_request() -> None:
    cluster = Cluster()
    cluster.admit(cluster.limits(TENANT), 4000)
    lower = SubjectLimits(Subject.TENANT, "acme", tokens_per_minute=500, version=2)
    assert cluster.refuse(cluster.limits(lower), 600).retry_after is None
    assert cluster.reserve(cluster.limits(TENANT), 600), "the record before changes nothing"
    assert cluster.limiters[0].limit_set([TENANT]).tokens[0].limit.amount == 500


def test_without_a_router_each_frontend_has_its_part() -> None:
    limiter = Limiter()
    limiter.observe([], 4, 0.0)
    limits = limiter.limit_set([SubjectLimits(Subject.KEY, "key_1", requests_per_minute=240)])
    assert isinstance(limits.reserve(1, 0.0), LimitRefusal)
    admitted = [limits.reserve(1, 120.0 + number / 1000) for number in range(100)]
    assert sum(isinstance(one, LimitReservation) for one in admitted) == 60
    refusal = admitted[-1]
    assert isinstance(refusal, LimitRefusal)
    assert refusal.retry_after == pytest.approx(1.0)


def test_a_frontend_that_is_dead_holds_no_place() -> None:
    cluster = Cluster(frontends=2)
    first = cluster.limits(PROJECT)
    assert [cluster.admit(first), cluster.admit(first)]
    second = cluster.limits(PROJECT, frontend=1)
    cluster.refuse(second)
    cluster.owner.drop("frontend-0")
    cluster.now += 0.1
    cluster.admit(second)


@pytest.mark.parametrize(
    "field", ["requests_per_minute", "tokens_per_minute", "requests_at_once", "context_tokens"]
)
@pytest.mark.parametrize("value", [-1, 10**12 + 1])
def test_amounts_out_of_range_are_refused_by_name(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"^{field}: {value} is out of range: 0 \(no limit\)"):
        SubjectLimits(Subject.KEY, "key_1", **{field: value})


def test_the_shortest_context_counts_and_the_tier_gives_the_tenants() -> None:
    key = SubjectLimits(Subject.KEY, "key_1", context_tokens=100_000)
    assert context_tokens([key, TENANT], "free") == (CONTEXT_TOKENS["free"], Subject.TENANT)
    assert context_tokens([key, TENANT], "enterprise") == (100_000, Subject.KEY)
    larger = SubjectLimits(Subject.TENANT, "acme", context_tokens=60_000)
    assert context_tokens([key, larger], "free") == (60_000, Subject.TENANT)
