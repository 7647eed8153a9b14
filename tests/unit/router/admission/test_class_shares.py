"""Classes are given their floors while they wait, and no more than their ceilings at any time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.router.admission.shares.class_shares import BURST_SECONDS, ClassShares
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission


def shares(**classes: ClassAdmission) -> ClassShares:
    return ClassShares(AdmissionPolicy({int(name[1:]): one for name, one in classes.items()}))


@given(
    st.lists(st.tuples(st.integers(1, 500), st.integers(-1, 1)), min_size=1, max_size=200),
    st.floats(0.05, 0.6),
    st.floats(0.05, 0.4),
)
def test_a_class_that_waits_is_given_its_floor_less_one_request(
    costs: list[tuple[int, int]], low: float, lower: float
) -> None:
    made = shares(c1=ClassAdmission(floor=low), c2=ClassAdmission(floor=lower))
    given_tokens, largest = [0, 0, 0], [0, 0, 0]
    for priority_class in range(3):
        made.join(priority_class)
    for cost, wrong in costs:
        # Strict ranks, but for floors; each class always has one more that waits.
        goes = min(range(3), key=lambda one: (not made.owed(one), one))
        made.join(goes)
        owed = made.begin(goes, cost, cost)
        used = cost + wrong * (cost // 2)
        made.settle(goes, used - cost, used - cost, owed=owed)
        given_tokens[goes] += used
        largest[goes] = max(largest[goes], 2 * cost)
        total = sum(given_tokens)
        for one, floor in ((1, low), (2, lower)):
            # While it was its turn, one request of each other class with a floor went at most.
            assert given_tokens[one] >= floor * total - sum(largest) - 1e-6
    # Nobody is given more by its floor than that.
    for one, floor in ((1, low), (2, lower)):
        assert given_tokens[one] <= floor * sum(given_tokens) + largest[one] + 1e-6


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.booleans(), st.integers(1, 500), st.integers(0, 3)),
        max_size=60,
    )
)
def test_what_did_not_wait_is_charged_as_what_waited_for_no_time(
    events: list[tuple[int, bool, int, int]],
) -> None:
    limits = {"c1": ClassAdmission(floor=0.4, ceiling=0.6), "c2": ClassAdmission(floor=0.2)}
    waited, now = shares(**limits), shares(**limits)
    for made in (waited, now):
        made.fill(0.0, 100.0)
    running: list[tuple[int, int, bool]] = []
    for priority_class, joins, cost, ends in events:
        if joins:
            waited.join(priority_class)
            now.join(priority_class)
        waited.join(priority_class)
        owed = waited.begin(priority_class, cost, cost)
        assert now.begin_now(priority_class, cost, cost) == owed
        running.append((priority_class, cost, owed))
        while running and ends:
            ended, charged, owed = running.pop()
            for made in (waited, now):
                made.settle(ended, -charged // 2, -charged // 2, owed=owed)
            ends -= 1
        assert [made.held(1) for made in (waited, now)] in ([True] * 2, [False] * 2)
        assert waited.debt_seconds(1) == now.debt_seconds(1)
        assert len(waited) == len(now)


def test_the_next_turn_is_when_something_flows_into_an_empty_bucket() -> None:
    made = shares(
        c1=ClassAdmission(ceiling=0.5), c2=ClassAdmission(ceiling=0.1), c3=ClassAdmission()
    )
    made.fill(0.0, 100.0)
    for priority_class in (1, 2, 3):
        made.begin_now(priority_class, 0, 1_000)
    assert [made.held(one) for one in (1, 2, 3)] == [True, True, False]
    # 500 tokens too much, of 50 a second; 900 of 10 a second.
    assert made.next_turn([1, 2, 3], 0.0) == 10.0
    assert made.next_turn([2, 3], 0.0) == 90.0
    assert made.next_turn([3], 0.0) == math.inf
    made.fill(10.0, 100.0)
    assert made.held(1), "it is empty, and not yet less than that"
    assert made.next_turn([1], 10.0) == 10.0
    made.fill(10.1, 100.0)
    assert not made.held(1)
    assert made.next_turn([1], 10.1) == math.inf
    made.fill(11.0, 0.0)
    assert made.held(2)
    assert made.next_turn([2], 11.0) == math.inf, "there are no workers"


def test_a_class_that_comes_back_has_saved_nothing_up() -> None:
    made = shares(c1=ClassAdmission(floor=0.5))
    for _ in range(3):
        made.join(0)
    made.begin(0, 1000, 1000)
    made.join(1)
    assert not made.owed(1)
    made.begin(0, 10, 10)
    assert made.owed(1)


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.integers(1, 4000), st.integers(-1, 1)),
        min_size=1,
        max_size=100,
    )
)
def test_a_class_never_has_more_than_its_ceiling(work: list[tuple[float, int, int]]) -> None:
    made = shares(c1=ClassAdmission(ceiling=0.25))
    rate, now = 0.25 * 1000.0, 0.0
    begun: list[tuple[float, int]] = []
    for passed, tokens, wrong in work:
        now += passed
        made.join(1)
        made.fill(now, 1000.0)
        if made.held(1):
            made.leave(1)
            continue
        owed = made.begin(1, tokens, tokens)
        used = tokens + wrong * (tokens // 2)
        made.settle(1, used - tokens, used - tokens, owed=owed)
        begun.append((now, used))
    for first, (since, _) in enumerate(begun):
        had = 0
        for at, used in begun[first:]:
            limit = rate * (at - since + BURST_SECONDS)
            assert had <= limit + 1e-6, "one more was begun though it had all it may have"
            had += used


def test_a_class_has_no_more_running_than_it_may() -> None:
    made = shares(c1=ClassAdmission(max_running=2))
    for _ in range(3):
        made.join(1)
    owed = [made.begin(1, 10, 10) for _ in range(2)]
    assert made.held(1)
    made.settle(1, 0, 0, owed=owed[0])
    assert not made.held(1)
    assert made.running(1) == 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 99), st.integers(0, 99)), max_size=60))
def test_nothing_is_kept_when_all_tickets_are_back(work: list[tuple[int, int, int]]) -> None:
    made = shares(c0=ClassAdmission(floor=0.3), c1=ClassAdmission(ceiling=0.5), c2=ClassAdmission())
    made.fill(0.0, 1000.0)
    for one, _, _ in work:
        made.join(one)
    running = [(one, begun, used, made.begin(one, begun, begun)) for one, begun, used in work[::2]]
    for one, _, _ in work[1::2]:
        made.leave(one)
    for one, begun, used, owed in running:
        made.settle(one, used - begun, used - begun, owed=owed)
    made.fill(1e6, 1000.0)
    made.join(2)
    made.leave(2)
    assert len(made) == 0


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"floor": -0.1}, "floor"),
        ({"floor": 1.1}, "floor"),
        ({"floor": math.nan}, "floor"),
        ({"ceiling": 0.0}, "ceiling"),
        ({"floor": 0.5, "ceiling": 0.4}, "exceeds ceiling"),
        ({"weight": 0.0}, "weight"),
        ({"deadline": 0.0}, "deadline"),
        ({"ttft_target": -1.0}, "ttft_target"),
        ({"itl_target": -1.0}, "itl_target"),
        ({"max_running": -1}, "max_running"),
        ({"max_wait": 0.0}, "max_wait"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(wrong: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ClassAdmission(**wrong)  # type: ignore[arg-type]


def test_floors_of_more_than_everything_are_refused() -> None:
    with pytest.raises(ValueError, match=r"the floors of all classes add up to 1\.1"):
        AdmissionPolicy({1: ClassAdmission(floor=0.5), 2: ClassAdmission(floor=0.6)})
