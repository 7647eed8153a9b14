"""Requests take their part of their key's limits before they run, and give it back exactly once."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from baton.errors import BatonError, Reason
from baton.internal.v1 import router_pb2
from baton.tenancy.directory.principal import Principal
from baton.tenancy.limits.budget.ledger import Ledger
from baton.tenancy.limits.limit_set import LimitReservation, LimitSet
from baton.tenancy.limits.owner import SETTLE_SECONDS, LimitOwner
from baton.tenancy.limits.spec import CONTEXT_TOKENS, LimitId, Measure, Subject
from baton.tenancy.limits.wire import answer_to_proto, ask_from_proto
from services.frontend.access import request_limits
from services.frontend.access.key_limits import MAX_KEYS
from services.frontend.access.request_limits import RequestLimits
from tests.support.tenancy import KEY, key, project, tenant
from tests.support.wait import eventually

ROUTER = "router-0"


class Session:
    """A call to a router: what is said on it is answered in a later turn, unless it is lost."""

    def __init__(self, routers: "Routers") -> None:
        self._routers = routers
        self.frames: list[router_pb2.LimitAsks] = []

    def send_asks(self, asks: router_pb2.LimitAsks) -> None:
        self.frames.append(asks)
        if not self._routers.mute:
            asyncio.get_running_loop().call_soon(self._routers.answer, asks)


class Routers:
    """One router, as a frontend reaches it."""

    on_answers: Callable[[str, router_pb2.LimitAnswers], None]
    on_closed: Callable[[str], None]

    def __init__(self, owner: LimitOwner, clock: Callable[[], float]) -> None:
        self.owner = owner
        self.mute = False
        self.session: Session | None = None
        self.opened = 0
        self.suspected: list[str] = []
        self._clock = clock
        self._ledger = Ledger(ROUTER, owner)

    def session_to(self, router: str) -> Session | None:
        if router != ROUTER:
            return None
        if self.session is None:
            self.opened += 1
            self.session = Session(self)
        return self.session

    def suspect(self, router: str) -> None:
        self.suspected.append(router)

    def breaks(self) -> None:
        self.session = None
        self.on_closed(ROUTER)

    def answer(self, asks: router_pb2.LimitAsks) -> None:
        answers = router_pb2.LimitAnswers()
        if asks.view and self.owner.roll_call.heard(asks.frontend, asks.era, asks.view):
            answers.era = self.owner.roll_call.era
        for message in asks.asks:
            ask = ask_from_proto(message)
            assert ask is not None
            answer = self.owner.answer(asks.frontend, ask, self._clock())
            if answer is not None:
                answer_to_proto(answer, answers.answers.add())
        for limit_id in self._ledger.unread(100):
            self._ledger.was_read(limit_id, None)
        self.owner.serve(self._clock())
        for _, answer in self.owner.take_pushed():
            answer_to_proto(answer, answers.answers.add())
        if answers.answers or answers.era:
            self.on_answers(ROUTER, answers)


class Cluster:
    """Frontends, and one router that has been there for long."""

    def __init__(self, frontends: int = 1) -> None:
        self.now = 1000.0
        self.wall = 1_794_000_000.0
        """In November 2026."""
        self.owner = LimitOwner(ROUTER)
        self.owner.observe([ROUTER], -3600.0)
        self.routers: list[Routers] = []
        self.frontends: list[RequestLimits] = []
        for number in range(frontends):
            routers: Any = Routers(self.owner, lambda: self.now)
            made = RequestLimits(routers, f"frontend-{number}", lambda: self.now, lambda: self.wall)
            made.observe({ROUTER}, frontends)
            self.routers.append(routers)
            self.frontends.append(made)

    @property
    def frontend(self) -> RequestLimits:
        return self.frontends[0]

    @property
    def router(self) -> Routers:
        return self.routers[0]

    async def admitted(self, principal: Principal, tokens: int = 10, frontend: int = 0) -> bool:
        try:
            await self.reserve(principal, tokens, frontend)
        except BatonError as error:
            assert error.reason is Reason.RATE_LIMITED
            return False
        return True

    async def reserve(
        self, principal: Principal, tokens: int = 10, frontend: int = 0
    ) -> LimitReservation:
        limits = self.frontends[frontend]
        return await limits.reserve(counted(limits, principal), tokens)


def counted(limits: RequestLimits, principal: Principal) -> LimitSet:
    found = limits.of(principal).counted
    assert found is not None
    return found


def who(**fields: Any) -> Principal:
    """Return a key with these fields, of a project and tenant without limits."""
    return Principal(tenant(), project(), key(**fields)[0])


async def test_who_has_no_limits_asks_nobody_and_has_a_context_by_tier() -> None:
    cluster = Cluster()
    found = cluster.frontend.of(who())
    assert (found.counted, found.most_tokens) == (None, None)
    assert (found.context.tokens, found.context.subject) == (CONTEXT_TOKENS["pro"], Subject.TENANT)
    await asyncio.sleep(0)
    assert cluster.router.session is not None, "a request that has some waits for no connection"
    assert not any(frame.asks for frame in cluster.router.session.frames)


async def test_a_change_of_any_record_makes_the_limits_anew() -> None:
    cluster = Cluster()
    mine = who(requests_per_minute=60)
    first = cluster.frontend.of(mine)
    assert cluster.frontend.of(mine) is first
    assert cluster.frontend.of(Principal(mine.tenant, mine.project, mine.key)) is first
    changed = key(requests_per_minute=1, version=2)[0]
    for record in (tenant(), project(context_tokens=5), changed):
        kind = type(record).__name__.lower()
        parts = {"tenant": mine.tenant, "project": mine.project, "key": mine.key, kind: record}
        assert cluster.frontend.of(Principal(**parts)) is not first
    lower = Principal(mine.tenant, mine.project, changed)
    assert await cluster.admitted(lower)
    assert not await cluster.admitted(lower)


async def test_the_shortest_context_counts_and_says_whose_it_is() -> None:
    found = Cluster().frontend.of(who(context_tokens=100, tokens_per_minute=70))
    assert (found.context.tokens, found.context.subject, found.context.name) == (
        100,
        Subject.KEY,
        KEY,
    )
    assert found.most_tokens == 70


async def test_keys_beyond_the_bound_are_forgotten_the_oldest_first() -> None:
    limits = Cluster().frontend
    keys = [who(ident=f"key_{number:016x}") for number in range(MAX_KEYS + 1)]
    first = limits.of(keys[0])
    second = limits.of(keys[1])
    for one in keys[2:-1]:
        limits.of(one)
    assert limits.of(keys[0]) is first
    limits.of(keys[-1])
    assert limits.of(keys[0]) is first
    assert limits.of(keys[1]) is not second


async def test_frontends_share_a_limit_to_the_request() -> None:
    cluster = Cluster(frontends=3)
    mine = who(requests_per_minute=10)
    outcomes = [await cluster.admitted(mine, frontend=number % 3) for number in range(12)]
    assert sum(outcomes) == 10
    cluster.now += 6.1
    assert await cluster.admitted(mine, frontend=1)


async def test_a_refusal_says_whose_limit_it_is_and_when_to_come_back() -> None:
    cluster = Cluster()
    mine = Principal(tenant(tokens_per_minute=60), project(), key()[0])
    await cluster.reserve(mine, 60)
    with pytest.raises(BatonError, match="tenant 'acme' is limited to 60 tokens") as refused:
        await cluster.reserve(mine, 30)
    error = refused.value
    assert error.quota is not None
    assert (error.quota.subject, error.quota.metric) == ("tenant:acme", "tokens_per_minute")
    assert error.quota.value == 60
    assert error.retry_after == pytest.approx(30.0, abs=1.0)
    with pytest.raises(BatonError, match="this request needs 61: shorten the request") as never:
        await cluster.reserve(mine, 61)
    assert never.value.retry_after is None


async def test_what_a_request_took_comes_back_once() -> None:
    cluster = Cluster(frontends=2)
    mine = who(requests_at_once=1, tokens_per_minute=60)
    running = await cluster.reserve(mine, 60)
    assert not await cluster.admitted(mine, 1, frontend=1)
    for used in (20, 0):
        cluster.frontend.settle(running, used)
    for limits in cluster.frontends:
        limits.tick()
    for _ in range(4):
        await asyncio.sleep(0)
    tokens, places = (
        cluster.owner._buckets[LimitId(Subject.KEY, KEY, measure)]
        for measure in (Measure.TOKENS, Measure.AT_ONCE)
    )
    assert (tokens.free + tokens.held, places.held) == (40, 0)
    cluster.now += 2
    assert await cluster.admitted(mine, 40, frontend=1)


async def test_what_is_said_in_one_turn_is_one_frame() -> None:
    cluster = Cluster()
    limited = {"requests_per_minute": 600, "tokens_per_minute": 600, "requests_at_once": 9}
    keys = [who(ident=f"key_{number:016x}", **limited) for number in range(20)]
    await asyncio.gather(*(cluster.reserve(one) for one in keys))
    assert cluster.router.session is not None
    frames = cluster.router.session.frames
    assert len(next(frame for frame in frames if frame.asks).asks) == 60
    assert {frame.frontend for frame in frames} == {"frontend-0"}


async def test_a_router_that_does_not_answer_is_waited_for_no_longer_than_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_limits, "WAIT_SECONDS", 0.01)
    cluster = Cluster()
    cluster.router.mute = True
    with pytest.raises(BatonError, match="no router is available") as refused:
        await cluster.reserve(who(requests_per_minute=10))
    assert (refused.value.reason, refused.value.retry_after) == (Reason.UNAVAILABLE, 1.0)
    assert not cluster.frontend._waiting


async def test_a_call_that_broke_is_made_again_and_what_was_lost_is_said_again() -> None:
    cluster = Cluster()
    cluster.router.mute = True
    waiting = asyncio.create_task(cluster.reserve(who(requests_per_minute=10)))
    await eventually(lambda: cluster.router.session and cluster.router.session.frames)
    cluster.router.mute = False
    cluster.router.breaks()
    assert cluster.router.suspected == [ROUTER]
    cluster.now += 0.25
    cluster.frontend.tick()
    assert isinstance(await waiting, LimitReservation)
    assert cluster.router.opened == 2


@pytest.mark.parametrize("answered", [False, True])
async def test_a_request_that_leaves_while_it_waits_holds_nothing(answered: bool) -> None:
    cluster = Cluster()
    mine = who(requests_at_once=1)
    cluster.router.mute = True
    waiting = asyncio.create_task(cluster.reserve(mine))
    await eventually(lambda: cluster.router.session and cluster.router.session.frames)
    assert cluster.router.session is not None
    if answered:  # in the same turn: the outcome is there when it is cancelled
        cluster.router.answer(cluster.router.session.frames[0])
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not cluster.frontend._waiting
    (share,) = counted(cluster.frontend, mine).shares
    assert share.in_use == 0
    cluster.router.mute = False
    if not answered:
        cluster.router.answer(cluster.router.session.frames[0])
    assert await cluster.admitted(mine)


@pytest.mark.parametrize("frontends", [1, 2])
async def test_what_waits_goes_on_when_its_router_is_gone(frontends: int) -> None:
    cluster = Cluster()
    cluster.router.mute = True
    waiting = asyncio.create_task(cluster.reserve(who(requests_per_minute=10)))
    await eventually(lambda: cluster.router.session and cluster.router.session.frames)
    cluster.frontend.observe(set(), frontends)
    if frontends == 1:  # it knows all that was granted: nothing
        await waiting
    else:  # its part begins empty
        with pytest.raises(BatonError) as refused:
            await waiting
        assert refused.value.reason is Reason.RATE_LIMITED
    cluster.now += 60
    assert await cluster.admitted(who(requests_per_minute=10))


async def test_a_new_owner_is_told_at_once_what_runs() -> None:
    cluster = Cluster()
    mine = who(requests_at_once=2)
    await cluster.reserve(mine)
    later = LimitOwner(ROUTER)
    later.observe([ROUTER], cluster.now - SETTLE_SECONDS)
    cluster.frontend.observe(set(), 1)
    cluster.router.owner = later
    cluster.frontend.observe({ROUTER}, 1)
    assert [await cluster.admitted(mine), await cluster.admitted(mine)] == [True, False]
    (share,) = counted(cluster.frontend, mine).shares
    assert (share.in_use, share.limit.id.measure) == (2, Measure.AT_ONCE)


async def test_a_budget_is_reserved_settled_and_returned_when_the_frontend_stops() -> None:
    cluster = Cluster()
    mine = who(budget_nanodollars_per_month=1000)
    limits = cluster.frontend
    found = counted(limits, mine)
    assert limits.has_budget(mine)
    assert not limits.has_budget(who(requests_per_minute=1))
    first = await limits.reserve(found, 10, 700)
    with pytest.raises(BatonError, match=r"may cost 0\.000000301 dollars") as refused:
        await limits.reserve(found, 10, 301)
    assert (refused.value.reason, refused.value.retry_after) == (Reason.INSUFFICIENT_QUOTA, 1.0)
    limits.settle(first, 5, 400)
    limits.settle(first, 5, 9999)
    cluster.now += 1.0
    second = await limits.reserve(found, 10, 600)
    limits.settle(second, 10, 600)
    cluster.now += 1.0
    with pytest.raises(BatonError, match="the rest is too small") as over:
        await limits.reserve(found, 10, 1)
    assert over.value.retry_after is None
    assert over.value.quota is not None
    assert over.value.quota.value == 1000
    await limits.close()
    (account,) = cluster.owner.accounts.values()
    assert account.charged == 1000


async def test_a_new_month_has_a_new_budget_and_what_runs_belongs_to_its_own() -> None:
    cluster = Cluster()
    limits, mine = cluster.frontend, who(budget_nanodollars_per_month=1000)
    old = counted(limits, mine)
    running = await limits.reserve(old, 10, 1000)
    cluster.wall += 31 * 86_400
    limits.tick()
    new = counted(limits, mine)
    assert [one.limit.id.month for one in (*old.budgets, *new.budgets)] == [202611, 202612]
    await limits.reserve(new, 10, 1000)
    limits.settle(running, 10, 250)
    await limits.close()
    charged = {one.month: account.charged for one, account in cluster.owner.accounts.items()}
    assert charged == {202611: 250, 202612: 1000}


async def test_a_cancelled_request_that_waited_for_money_holds_none() -> None:
    cluster = Cluster()
    limits, mine = cluster.frontend, who(budget_nanodollars_per_month=1000)
    found = counted(limits, mine)
    cluster.router.mute = True
    waiting = asyncio.create_task(limits.reserve(found, 10, 800))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    cluster.router.mute = False
    cluster.now += 1.0
    limits.tick()
    assert await limits.reserve(found, 10, 1000)
