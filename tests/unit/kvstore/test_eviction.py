"""Which tenant pays for room, and in which order."""

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from baton.kv.objects import ObjectId
from services.kvstore.eviction.base import Entry, Order
from services.kvstore.eviction.cost_aware import ECHO, CostAwareOrder
from services.kvstore.eviction.costs import Costs
from services.kvstore.eviction.lru import Lru
from services.kvstore.eviction.policy import EvictionPolicy
from tests.support.examples import examples

ORDERS: dict[str, type[Order]] = {"lru": Lru, "cost-aware": CostAwareOrder}

CAPACITY = 60
TENANTS = ("a", "b", "c")


def entry(number: int, tenant: str = "", **values: object) -> Entry:
    name = ObjectId(b"L" * 16, number.to_bytes(16, "big"))
    return Entry(object_id=name, slot_bytes=1, tenant=tenant, **values)  # type: ignore[arg-type]


class Tier:
    """A tier of equal entries that keeps its own books beside the policy's."""

    def __init__(
        self, capacity: int = CAPACITY, order: type[Order] = CostAwareOrder, **quotas: int
    ) -> None:
        self.policy = EvictionPolicy[Entry](capacity, order, quotas)
        self.capacity = capacity
        self.entries: dict[int, Entry] = {}

    def held(self, tenant: str) -> int:
        return sum(e.tenant == tenant for e in self.entries.values())

    def put(self, number: int, tenant: str = "") -> list[Entry] | None:
        """Write; answers what was evicted, None where there was no room."""
        gone = []
        while self.policy.excess(tenant, 1) > 0:
            own = self.policy.choose_own(tenant, 1)
            if not own:
                return None
            gone.extend(own)
            self.drop(own[0])
        while len(self.entries) >= self.capacity:
            victims = self.policy.choose(1, tenant, lambda e: [e], list)
            if not victims:
                return None
            for victim in victims:
                gone.append(victim)
                self.drop(victim)
        new = self.entries[number] = entry(number, tenant)
        self.policy.charge(tenant, 1)
        self.policy.add(new)
        return gone

    def drop(self, victim: Entry) -> None:
        assert not victim.pinned
        assert victim.held
        self.policy.remove(victim, evicted=True)
        self.policy.refund(victim.tenant, 1)
        del self.entries[int.from_bytes(victim.object_id.key, "big")]


@pytest.fixture(params=sorted(ORDERS))
def order(request: pytest.FixtureRequest) -> type[Order]:
    """Each order."""
    return ORDERS[request.param]


class Fair(RuleBasedStateMachine):
    """Tenants that write, use and pin as they like: shares and quotas hold at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.tier = Tier(CAPACITY, c=9)
        self.numbers = 0
        self.pinned: list[Entry] = []

    @initialize(name=st.sampled_from(sorted(ORDERS)))
    def choose_order(self, name: str) -> None:
        self.tier = Tier(CAPACITY, ORDERS[name], c=9)

    @rule(tenant=st.sampled_from(TENANTS), count=st.integers(1, 30), old=st.booleans())
    def write(self, tenant: str, count: int, old: bool) -> None:
        for _ in range(count):
            before = {name: self.tier.held(name) for name in TENANTS}
            present = {name for name in TENANTS if before[name]} | {tenant}
            share = {name: CAPACITY / len(present) for name in TENANTS}
            share["c"] = min(9, share["c"])
            number = random.Random(self.numbers).randrange(200) if old else 1000 + self.numbers
            self.numbers += 1
            if number in self.tier.entries:
                continue
            gone = self.tier.put(number, tenant)
            if gone is None:
                # Refused: whatever may pay is pinned.
                over = [n for n in present if before[n] > share[n] or n == tenant]
                free = [e for e in self.tier.entries.values() if not e.pinned]
                assert not [e for e in free if e.tenant == tenant]
                if before[tenant] + 1 <= share[tenant]:
                    assert not free
                assert not [e for e in free if e.tenant in over and tenant != "c"]
                continue
            for victim in gone:
                payer = victim.tenant
                if before[tenant] + 1 > share[tenant] and payer != tenant:
                    assert before[payer] > share[payer]
                over = {n: before[n] - share[n] for n in present if before[n] > share[n]}
                if over and payer not in over:
                    assert (
                        all(e.pinned for e in self.tier.entries.values() if e.tenant in over)
                        or payer == "c"
                    )

    @precondition(lambda self: self.tier.entries)
    @rule(data=st.data(), count=st.integers(1, 8))
    def use(self, data: st.DataObject, count: int) -> None:
        for number in data.draw(
            st.lists(st.sampled_from(sorted(self.tier.entries)), max_size=count)
        ):
            self.tier.policy.use(self.tier.entries[number])

    @precondition(lambda self: self.tier.entries)
    @rule(data=st.data(), count=st.integers(1, 20))
    def pin(self, data: st.DataObject, count: int) -> None:
        free = sorted(n for n, e in self.tier.entries.items() if not e.pinned)
        for number in free[:count]:
            self.tier.policy.pin(self.tier.entries[number])
            self.pinned.append(self.tier.entries[number])

    @rule()
    def unpin(self) -> None:
        while self.pinned:
            self.tier.policy.unpin(self.pinned.pop())

    @invariant()
    def books_agree(self) -> None:
        held = {name: self.tier.held(name) for name in TENANTS if self.tier.held(name)}
        assert self.tier.policy.held_bytes == held
        assert held.get("c", 0) <= 9
        assert len(self.tier.entries) <= CAPACITY


TestFair = Fair.TestCase
TestFair.settings = settings(max_examples=examples(40), stateful_step_count=25)


def test_a_flood_evicts_nothing_of_a_tenant_within_its_share(order: type[Order]) -> None:
    tier = Tier(100, order)
    for number in range(50):
        tier.put(number, "quiet")
    for number in range(1000, 6000):
        tier.put(number, "flood")
    assert tier.held("quiet") == 50
    assert tier.held("flood") == 50


def test_what_others_do_not_use_is_free_to_use_and_comes_back(order: type[Order]) -> None:
    tier = Tier(100, order)
    for number in range(500):
        tier.put(number, "one")
    assert tier.held("one") == 100
    for number in range(1000, 1050):
        gone = tier.put(number, "two")
        assert gone is not None
        assert [e.tenant for e in gone] == ["one"]
    gone = tier.put(2000, "two")
    assert gone is not None
    assert [e.tenant for e in gone] == ["two"]


def test_a_quota_holds_although_there_is_room() -> None:
    tier = Tier(100, small=10)
    for number in range(40):
        assert tier.put(number, "small") is not None
    assert tier.held("small") == 10
    for e in tier.entries.values():
        tier.policy.pin(e)
    assert tier.put(99, "small") is None
    assert tier.put(100, "other") == []


def test_nothing_pinned_goes_however_long_it_was_not_used(order: type[Order]) -> None:
    tier = Tier(20, order)
    for number in range(20):
        tier.put(number)
    for number in range(10):
        tier.policy.pin(tier.entries[number])
    for number in range(100, 400):
        assert tier.put(number) is not None
    assert all(number in tier.entries for number in range(10))
    for e in list(tier.entries.values()):
        if not e.pinned:
            tier.policy.pin(e)
    assert tier.put(999) is None
    for number in range(10):
        tier.policy.unpin(tier.entries[number])
    for number in range(1000, 1010):
        assert tier.put(number) is not None


def test_what_is_new_goes_where_all_that_is_old_is_pinned(order: type[Order]) -> None:
    tier = Tier(100, order)
    for number in range(95):
        tier.put(number)
        tier.policy.use(tier.entries[number])
    for e in tier.entries.values():
        tier.policy.pin(e)
    for number in range(1000, 1200):
        assert tier.put(number) is not None
    assert all(number in tier.entries for number in range(95))


def test_lru_goes_by_last_use() -> None:
    tier = Tier(3, Lru)
    for number in range(3):
        tier.put(number)
    tier.policy.use(tier.entries[0])
    tier.put(3)
    assert set(tier.entries) == {0, 2, 3}


def used(tier: Tier, numbers: range, rounds: int, between: Callable[[], None]) -> None:
    for _ in range(rounds):
        for number in numbers:
            tier.policy.use(tier.entries[number])
        between()


def test_cost_aware_keeps_what_is_used_often_through_a_scan() -> None:
    tier = Tier(2000)
    for number in range(100):
        tier.put(number)
    fresh = iter(range(10_000, 1_000_000))

    def scan() -> None:
        for _ in range(1500):
            tier.put(next(fresh))

    used(tier, range(100), 6, scan)
    for _ in range(2):
        scan()  # more than fits: LRU would have lost them
    assert all(number in tier.entries for number in range(100))
    for _ in range(100):
        scan()
        if not any(number in tier.entries for number in range(100)):
            break
    else:
        pytest.fail("what is not used any more was never evicted")


def test_cost_aware_does_not_count_echoes() -> None:
    one, two = entry(1), entry(2)
    order = CostAwareOrder()
    order.add(one, 1)
    order.add(two, 2)
    for now in range(3, 3 + int(order.horizon / ECHO) - 8):
        order.use(one, now)
    assert one.uses == 1
    order.use(two, 3 + int(order.horizon / ECHO))
    assert two.uses == 2


def test_cost_aware_prefers_what_is_cheap_to_compute_again() -> None:
    order = CostAwareOrder()
    cheap, dear = entry(1, cost=0.5), entry(2, cost=2.0)
    order.add(dear, 1)
    order.add(cheap, 2)
    assert order.first() is cheap
    absurd = entry(3, cost=1e300)
    order.add(absurd, 4)
    assert absurd.rank < 10 * order.horizon


def of_sizes(order: type[Order], draw: random.Random) -> EvictionPolicy[Entry]:
    """Entries of two sizes, used and pinned at random."""
    policy = EvictionPolicy[Entry](1000, order)
    entries = []
    for number in range(60):
        one = entry(number, partial=draw.random() < 0.1, cost=draw.choice([1.0, 1.0, 3.0]))
        one.slot_bytes = draw.choice([1, 1, 4])
        policy.charge("", one.slot_bytes)
        policy.add(one)
        entries.append(one)
    for _ in range(80):
        policy.use(draw.choice(entries))
    for one in draw.sample(entries, 10):
        policy.pin(one)
    return policy


def drain(policy: EvictionPolicy[Entry], choose: Callable[[], Sequence[Entry]]) -> list[ObjectId]:
    """What goes, in order, until nothing does."""
    gone = []
    while victims := choose():
        policy.remove(*victims, evicted=True)
        for victim in victims:
            policy.refund(victim.tenant, victim.slot_bytes)
            gone.append(victim.object_id)
    return gone


@pytest.mark.parametrize("seed", range(20))
def test_many_at_once_go_in_the_order_in_which_they_would_go_one_by_one(
    order: type[Order], seed: int
) -> None:
    def alone(one: Entry) -> list[Entry]:
        return [one]

    one, many = (of_sizes(order, random.Random(seed)) for _ in range(2))
    by_one = drain(one, lambda: one.choose(1, "", alone, list))
    assert by_one == drain(many, lambda: many.choose(1, "", alone, list, 7))
    assert len(by_one) == 50
    one, many = (of_sizes(order, random.Random(seed)) for _ in range(2))
    by_one = drain(one, lambda: one.choose_own("", 1))
    assert by_one == drain(many, lambda: many.choose_own("", 9))
    assert len(by_one) == 50


def test_costs_are_relative_to_what_is_usual() -> None:
    costs = Costs()
    assert costs.relative(0.0, 100, 1) == 1.0
    assert costs.relative(1.0, 100, 1) == 1.0
    assert costs.relative(4.0, 100, 1) == pytest.approx(4, rel=0.01)
    assert costs.relative(2.0, 200, 1) == pytest.approx(1, rel=0.01)
