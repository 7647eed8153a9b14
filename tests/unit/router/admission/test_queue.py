"""Whatever comes, is cancelled, runs out of time and is placed, the order is that of a sort."""

import math
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from baton.errors import BatonError, Reason
from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.class_shares import ClassShares
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission
from services.router.admission.shares.fairness import FairShares
from services.router.admission.shares.tiers import TierPolicy
from services.router.admission.waiting import QueueSettings, TicketCharge, WaitingRequest
from tests.support.examples import examples
from tests.support.router.admission import Plan, Workers, made, place_due, waiting


@pytest.mark.parametrize("gate", [0.0, 0.1])
def test_a_request_waits_until_a_worker_has_no_more_than_the_gate_to_do(gate: float) -> None:
    workers = Workers({"a": 0.0, "b": gate + 0.01})
    queue = made(waiting(1), waiting(2), waiting(3), workers=workers, gate=gate)
    assert place_due(queue, workers) == [1]
    assert workers.queues == {"a": 1.0, "b": gate + 0.01}
    assert place_due(queue, workers) == []
    workers.queues["b"] = gate
    assert place_due(queue, workers) == [2]
    assert len(queue) == 1


def test_the_least_left_to_compute_goes_first_and_waiting_makes_up_for_work() -> None:
    workers = Workers({"a": 9.0})
    # 20 s of work count as much as 10 s after 200 s of waiting.
    queue = made(
        waiting(1, 2000, 0), waiting(2, 999, 200), waiting(3, 1001, 200), workers=workers, age=0.05
    )
    assert list(queue.order()) == [2, 1, 3]


def test_a_higher_rank_goes_first_whatever_it_costs() -> None:
    workers = Workers({"a": 9.0})
    queue = made(waiting(1, 10, rank=1), waiting(2, 9999, rank=0), workers=workers)
    assert list(queue.order()) == [2, 1]


def test_what_is_planned_first_counts_for_those_behind() -> None:
    class Near(Workers):
        """`b` takes 0.5 s longer than `a` for any request, and is no choice for the first one."""

        def plan(self, waiting: WaitingRequest, planned: Mapping[str, float], now: float) -> Plan:
            costs = {name: self.queues[name] + planned.get(name, 0.0) for name in "ab"}
            worker = "a" if waiting.number == 1 or costs["a"] < costs["b"] + 0.5 else "b"
            return Plan(worker, 5.0, 500)

    workers = Near({"a": 0.2, "b": 0.05})
    # The second one would wait for a if the first one did not: it is to have a before it.
    queue = made(waiting(2, 200), workers=workers)
    assert place_due(queue, workers) == []
    queue.add(waiting(1, 100), workers, 0.0)
    assert place_due(queue, workers) == [2]
    assert list(queue.order()) == [1]


def test_what_has_no_room_waits_and_what_is_behind_it_takes_none_of_its_room() -> None:
    workers = Workers({"a": 0.0}, places=3)
    queue = made(waiting(1, 100, n=4), waiting(2, 200), workers=workers, gate=math.inf)
    assert place_due(queue, workers) == []
    workers.places = 4
    assert place_due(queue, workers) == [1]
    assert place_due(queue, workers) == []
    workers.places = 1
    assert place_due(queue, workers) == [2]


def test_nothing_is_planned_while_no_worker_has_room() -> None:
    workers = Workers({"a": 0.0, "b": 0.0}, places=0)
    queue = made(*(waiting(number) for number in range(9)), workers=workers)
    assert place_due(queue, workers) == []
    assert workers.planned == 0
    workers.places = 2
    big = made(*(waiting(number, n=4) for number in range(9)), workers=workers)
    assert place_due(big, workers) == []
    assert workers.planned == 1, "all that there is, is kept for the first one"


def test_a_request_of_many_choices_goes_after_those_that_take_less_of_a_worker() -> None:
    workers = Workers({"a": 9.0})
    many, one = waiting(1, 100, n=8), waiting(2, 101)
    many.choices_seconds = 7 * 0.02
    queue = made(many, one, workers=workers)
    assert list(queue.order()) == [2, 1]
    # Waiting makes up for it, at 5 ms a second: for 0.14 s less 0.01 s after 26 s.
    queue.add(waiting(3, 101, at=25.0), workers, 25.0)
    queue.add(waiting(4, 101, at=27.0), workers, 27.0)
    assert list(queue.order()) == [2, 3, 1, 4]


def test_nothing_is_planned_while_all_workers_have_enough_to_do() -> None:
    workers = Workers({"a": 0.2, "b": 3.0})
    queue = made(*(waiting(number) for number in range(9)), workers=workers)
    assert place_due(queue, workers) == []
    assert workers.planned == 0


def test_only_the_first_ones_are_planned() -> None:
    class Elsewhere(Workers):
        """All want `a`, which is busy."""

        def plan(self, waiting: WaitingRequest, planned: Mapping[str, float], now: float) -> Plan:
            super().plan(waiting, planned, now)
            return Plan("a", 0.0, 1)

    workers = Elsewhere({"a": 1.0, "b": 0.0})
    queue = made(*(waiting(number) for number in range(9)), workers=workers, window=4)
    assert place_due(queue, workers) == []
    assert workers.planned == 4


def test_a_tenant_that_had_less_goes_before_shorter_prompts() -> None:
    workers = Workers({"a": 0.0})
    queue = made(waiting(1, tenant="x"), waiting(2, 50, tenant="x"), workers=workers)
    queue.add(waiting(3, 900, tenant="y"), workers, 0)
    assert place_due(queue, workers) == [2]
    assert list(queue.order()) == [3, 1]


def test_an_estimate_is_made_again_when_it_is_old() -> None:
    workers = Workers({"a": 9.0})
    queue = made(waiting(1, 100), waiting(2, 200), workers=workers, refresh=0.5)
    workers.held[2] = 150
    place_due(queue, workers, 0.5)
    assert list(queue.order()) == [1, 2], "nothing can go, in whatever order"
    workers.queues["a"] = 0.0
    assert place_due(queue, workers, 0.5) == [2]


def test_an_estimate_that_is_not_old_is_kept() -> None:
    workers = Workers({"a": 9.0})
    queue = made(waiting(1, 100), waiting(2, 200), workers=workers, refresh=0.5)
    workers.held[2] = 150
    workers.queues["a"] = 0.0
    assert place_due(queue, workers, 0.4) == [1]


def test_what_can_go_nowhere_leaves_with_the_error() -> None:
    workers = Workers({"a": 0.0}, refuse={1})
    shares = FairShares()
    queue = AdmissionQueue(shares)
    queue.add(waiting(1), workers, 0)
    (due,) = queue.due(workers, 0)
    assert isinstance(due.plan, BatonError)
    assert (due.charge, len(queue), len(shares)) == (None, 0, 0)


def test_a_deadline_and_the_longest_wait_end_the_wait() -> None:
    workers = Workers({"a": 9.0})
    requests = [waiting(1, deadline=5), waiting(2), waiting(3, at=1)]
    queue = made(*requests, workers=workers, max_wait=10, waits=True)
    assert queue.expire(4.9) == []
    assert [one.number for one in queue.expire(5)] == [1]
    assert [one.number for one in queue.expire(10.5)] == [2]
    assert list(queue.order()) == [3]


def test_a_session_that_ends_takes_its_requests_along() -> None:
    workers = Workers({"a": 9.0})
    queue = made(waiting(2), waiting(1), waiting(3, session=2), workers=workers)
    assert [one.number for one in queue.end_session(1)] == [1, 2]
    assert queue.end_session(1) == []
    assert list(queue.order()) == [3]


def test_a_full_queue_refuses_unless_a_lower_rank_can_give_way() -> None:
    workers = Workers({"a": 9.0})
    first = [waiting(1, 10, rank=1), waiting(2, 20, rank=1, tenant="x"), waiting(3)]
    queue = made(*first, workers=workers, max_total=3)
    with pytest.raises(BatonError, match="queue for all tenants is full") as refused:
        queue.add(waiting(4, rank=1), workers, 0)
    assert refused.value.reason is Reason.OVERLOADED
    gave_way = queue.add(waiting(5), workers, 0)
    assert gave_way is not None
    assert gave_way.number == 2, "the last one to go"
    assert sorted(queue.order()) == [1, 3, 5]


def test_a_tenant_has_a_bound_of_its_own() -> None:
    workers = Workers({"a": 9.0})
    queue = made(waiting(1, tenant="x", rank=1), workers=workers, max_tenant=1)
    queue.add(waiting(2, tenant="y", rank=1), workers, 0)
    with pytest.raises(BatonError, match="for tenant 'x'"):
        queue.add(waiting(3, tenant="x", rank=1), workers, 0)
    gave_way = queue.add(waiting(3, tenant="x"), workers, 0)
    assert gave_way is not None
    assert gave_way.number == 1


LIMITS = AdmissionPolicy(
    {
        0: ClassAdmission(ttft_target=40.0),
        1: ClassAdmission(floor=0.2, max_running=3, deadline=15.0, waits=True),
        2: ClassAdmission(floor=0.3, ceiling=0.5, weight=2.0, max_wait=10.0),
    }
)


TIER_OF = {"x": 0, "y": 1, "z": 1, "w": 2}


class QueueAgainstSort(RuleBasedStateMachine):
    """Everything that can happen to a queue, beside a list that is sorted each time."""

    strict = False

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.workers = Workers({"a": 0.0, "b": 0.0})
        self.shares = FairShares(1.5)
        self.shares.tokens_per_second = 100.0  # as the workers'
        tiers = TierPolicy(strict=self.strict)
        self.constants = QueueSettings(
            max_wait=20.0, refresh=2.0, max_tenant=6, max_total=12, tiers=tiers
        )
        self.classes = ClassShares(LIMITS)
        self.queue = AdmissionQueue(self.shares, self.constants, self.classes)
        self.waiting: dict[int, WaitingRequest] = {}
        self.running: list[TicketCharge] = []
        self.number = 0

    @rule(
        tokens=st.integers(1, 900),
        tenant=st.sampled_from("xyzw"),
        rank=st.integers(0, 2),
        session=st.integers(0, 2),
        deadline=st.sampled_from((3.0, 15.0, float("inf"))),
    )
    def arrive(self, tokens: int, tenant: str, rank: int, session: int, deadline: float) -> None:
        self.number += 1
        one = waiting(
            self.number,
            tokens,
            self.now,
            tenant=tenant,
            rank=rank,
            tier=TIER_OF[tenant],
            session=session,
            deadline=self.now + deadline,
        )
        of_tenant = [other for other in self.waiting.values() if other.tenant == tenant]
        full = len(of_tenant) >= 6 or len(self.waiting) >= 12
        among = of_tenant if len(of_tenant) >= 6 else list(self.waiting.values())
        before = list(self.queue.order())
        try:
            gave_way = self.queue.add(one, self.workers, self.now)
        except BatonError as error:
            if "first token" in str(error):
                assert one.due < float("inf")
            else:
                assert full
                if not self.strict and len(of_tenant) < 6:
                    among = self.most_over(one)
                assert all(other.rank <= one.rank for other in among)
            assert list(self.queue.order()) == before, "nobody gave way to one that was refused"
            return
        assert one.due == float("inf") or one.due <= one.arrival + 40
        assert (gave_way is not None) == full
        if gave_way is not None:
            if not self.strict and len(of_tenant) < 6:
                among = self.most_over(one)
            assert gave_way.rank == max(other.rank for other in among)
            assert gave_way.rank > one.rank or gave_way.rank[0] != one.rank[0]
            del self.waiting[gave_way.number]
        self.waiting[one.number] = one

    def most_over(self, newcomer: WaitingRequest) -> list[WaitingRequest]:
        """Return what waits of the tier that has most for its share, the newcomer counted."""
        counts = Counter(one.rank[0] for one in [*self.waiting.values(), newcomer])
        shares = self.constants.tiers
        parts = {tier: count / shares.share(tier) for tier, count in counts.items()}
        own = newcomer.rank[0]
        equal = [tier for tier, part in parts.items() if part == max(parts.values())]
        most = own if own in equal else max(equal)
        return [one for one in self.waiting.values() if one.rank[0] == most]

    @rule(pick=st.integers(0, 40))
    def cancel(self, pick: int) -> None:
        number = pick if not self.waiting else sorted(self.waiting)[pick % len(self.waiting)]
        assert self.queue.remove(number) is self.waiting.pop(number, None)

    @rule(session=st.integers(0, 2))
    def lose_session(self, session: int) -> None:
        for gone in self.queue.end_session(session):
            assert self.waiting.pop(gone.number).session == session
        assert all(one.session != session for one in self.waiting.values())

    @rule(seconds=st.floats(0, 4), held=st.integers(0, 300), pick=st.integers(0, 40))
    def pass_time(self, seconds: float, held: int, pick: int) -> None:
        self.now += seconds
        self.workers.held[pick] = held
        for worker, queued in self.workers.queues.items():
            self.workers.queues[worker] = max(0.0, queued - seconds)
        for gone in self.queue.expire(self.now):
            assert self.waiting.pop(gone.number).bound <= self.now
        # No admitted request waits beyond its bound.
        assert all(self.now < one.bound for one in self.waiting.values())
        longest = {0: 20.0, 1: 15.0, 2: 10.0}
        assert all(
            one.bound <= min(one.deadline, one.arrival + longest[one.priority_class])
            for one in self.waiting.values()
        )

    @rule()
    def place(self) -> None:
        for due in self.queue.due(self.workers, self.now):
            one = self.waiting.pop(due.waiting.number)
            assert one is due.waiting
            if isinstance(due.plan, BatonError):
                # As it is planned now: `one.work` is as old as `refresh` lets it be.
                work = self.workers.remaining_seconds(one.request)
                assert one.deadline < self.now + (min(self.workers.queues.values()) + work)
                continue
            assert self.workers.queues[due.plan.worker_id] <= self.constants.gate
            self.workers.place(due)
            assert due.charge is not None
            self.running.append(due.charge)
            assert self.classes.running(1) <= 3
        if any(not self.classes.held(one.priority_class) for one in self.waiting.values()):
            assert min(self.workers.queues.values()) > self.constants.gate

    @rule(used=st.integers(0, 900))
    def end(self, used: int) -> None:
        if self.running:
            self.queue.charges.settle(self.running.pop(0), used, 0)

    @invariant()
    def order_is_that_of_a_sort(self) -> None:
        leads = self.shares.leads()
        naive = sorted(
            self.waiting.values(),
            key=lambda one: (
                self.classes.held(one.priority_class),
                not self.classes.owed(one.priority_class),
                one.rank,
                leads[one.tenant],
                one.key,
                one.number,
            ),
        )
        order = [self.waiting[number] for number in self.queue.order()]
        if self.strict:
            assert order == naive
        # Tiers take turns, and nothing else is turned round.
        for tier in set(TIER_OF.values()):
            assert [one for one in order if one.rank[0] == tier] == [
                one for one in naive if one.rank[0] == tier
            ]
        sections = [
            (self.classes.held(one.priority_class), not self.classes.owed(one.priority_class))
            for one in order
        ]
        assert sections == sorted(sections)
        assert len(self.queue) == len(self.waiting)

    def teardown(self) -> None:
        for number in list(self.waiting):
            self.queue.remove(number)
        for charge in self.running:
            self.queue.charges.settle(charge)
        assert len(self.queue) == len(self.shares) == 0
        assert not any(self.classes.running(number) for number in range(3))
        self.classes.fill(self.now, 200.0)
        self.classes.fill(self.now + 1e4, 200.0)
        self.shares.join("x", 1.0)
        self.queue.add(waiting(0, tenant="x"), self.workers, 0.0)
        self.queue.remove(0)
        self.shares.leave("x")
        assert len(self.classes) == 0, "buckets are full again, clocks are forgotten"
        kept = ("_waiting", "_lines", "_tenants", "_sessions", "_bounds", "_estimated")
        assert not any(getattr(self.queue, name) for name in kept)


class StrictQueueAgainstSort(QueueAgainstSort):
    strict = True


TestQueueAgainstSort = QueueAgainstSort.TestCase
TestStrictQueueAgainstSort = StrictQueueAgainstSort.TestCase
for case in (TestQueueAgainstSort, TestStrictQueueAgainstSort):
    case.settings = settings(max_examples=examples(24), stateful_step_count=40, deadline=None)


def test_slow_workers_let_a_tenant_pass_one_that_had_as_much_as_they_compute_in_two_seconds() -> (
    None
):
    workers = Workers({"a": 0.0, "b": 0.0})
    queue = AdmissionQueue(FairShares())
    for number in range(1, 9):
        queue.add(waiting(number, 120, tenant="large"), workers, 0.0)
    queue.add(waiting(10, 150, tenant="small"), workers, 0.0)
    placed = []
    for _ in range(3):
        workers.queues = dict.fromkeys(workers.queues, 0.0)
        placed += place_due(queue, workers)
    # 200 tokens are two seconds of a worker: shorter prompts go first until then.
    assert placed == [1, 2, 10, 3, 4, 5]
