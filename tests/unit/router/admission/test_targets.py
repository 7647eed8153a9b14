"""Who would come too late is refused at once, and who is admitted is not late for those behind."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from services.router.admission.lateness import Lateness
from services.router.admission.queue import AdmissionQueue
from services.router.admission.shares.class_shares import ClassShares
from services.router.admission.shares.classes import AdmissionPolicy, ClassAdmission
from services.router.admission.shares.fairness import FairShares
from services.router.admission.waiting import QueueSettings
from tests.support.examples import examples
from tests.support.router.admission import Workers, made, waiting


def refused(queue: AdmissionQueue, workers: Workers, *arguments: float, **options: float) -> float:
    """Return the seconds to retry after."""
    one = waiting(*arguments, **options)  # type: ignore[arg-type]
    with pytest.raises(BatonError, match="predicted time to first token is") as error:
        queue.add(one, workers, one.arrival)
    assert error.value.reason is Reason.OVERLOADED
    assert error.value.retry_after is not None
    return error.value.retry_after


def test_what_would_come_too_late_is_refused_with_a_time_to_retry_after() -> None:
    workers = Workers({"a": 4.0, "b": 6.0})
    queue = made(waiting(1, 200), workers=workers)
    # Until 6 s both workers compute what they have and the first one: 9 s with its own 3.
    assert refused(queue, workers, 2, 300, target=6.5) == pytest.approx(2.5)
    assert queue.add(waiting(3, 300, target=10.0), workers, 0) is None
    assert refused(queue, workers, 4, 9_999, target=1.0) == 60.0


@pytest.mark.parametrize("waits", [False, True])
def test_what_would_wait_for_longer_than_its_bound_is_refused(waits: bool) -> None:
    workers = Workers({"a": 4.0, "b": 6.0})
    queue = made(waiting(1, 200), workers=workers, waits=waits)
    # Its own 9 s are no wait. Until 6 s both workers compute what they have and the first one.
    assert queue.add(waiting(2, 900, place_by=6.0), workers, 0) is None
    with pytest.raises(
        BatonError, match=r"the predicted wait is 10\.5 s; the request allows 5"
    ) as error:
        queue.add(waiting(3, 1000, place_by=5.0), workers, 0)
    assert (error.value.reason, error.value.retry_after) == (Reason.OVERLOADED, 5.5)
    assert queue.add(waiting(4, 1000), workers, 0) is None
    assert [one.number for one in queue.expire(5.9)] == []
    assert [one.number for one in queue.expire(6.0)] == [2]


def test_a_short_prompt_that_would_make_an_admitted_one_late_is_refused() -> None:
    workers = Workers({"a": 5.0})
    queue = made(waiting(1, 300, target=9.0), workers=workers)
    assert refused(queue, workers, 2, 150, target=9.0) == 1.0
    assert queue.add(waiting(3, 100, target=9.0), workers, 0) is None
    assert list(queue.order()) == [3, 1]


def test_what_is_refused_for_what_waits_is_not_planned() -> None:
    workers = Workers({"a": 5.0})
    queue = made(waiting(1, 300, target=9.0), workers=workers)
    planned = workers.planned
    refused(queue, workers, 2, 400, target=9.0)
    refused(queue, workers, 3, 150, target=9.0)
    assert (workers.planned, len(queue)) == (planned, 1)
    queue.add(waiting(4, 100, target=9.0), workers, 0)
    assert workers.planned == planned + 1


def test_a_higher_class_is_not_refused_for_a_lower_one() -> None:
    workers = Workers({"a": 5.0})
    queue = made(waiting(1, 300, target=9.0, rank=1), workers=workers)
    assert queue.add(waiting(2, 350, target=9.0), workers, 0) is None


def test_a_class_may_wait_for_what_comes_too_late() -> None:
    workers = Workers({"a": 9.0})
    queue = made(waiting(1, 300, target=1.0), workers=workers, waits=True)
    assert len(queue) == 1


def test_a_class_has_times_for_requests_that_name_none() -> None:
    policy = AdmissionPolicy({0: ClassAdmission(ttft_target=5.0, deadline=7.0)})
    workers = Workers({"a": 0.0})
    queue = AdmissionQueue(FairShares(), classes=ClassShares(policy))
    plain, own = waiting(1, at=3.0), waiting(2, at=3.0, target=30.0, deadline=50.0)
    queue.add(plain, workers, 3.0)
    queue.add(own, workers, 3.0)
    assert (plain.due, plain.bound) == (8.0, 10.0)
    assert (own.due, own.bound) == (33.0, 50.0)
    # Slow requests are told by targets, not by deadlines.
    assert policy.targets(0, plain.ttft_target) == (5.0, 0.0)
    assert policy.targets(0, own.ttft_target) == (30.0, 0.0)
    assert policy.targets(1, plain.ttft_target) == (0.0, 0.0)


def test_time_waited_elsewhere_counts() -> None:
    workers = Workers({"a": 0.0})
    queue = made(workers=workers)
    one = waiting(1, 300, at=0.0, target=5.0)
    with pytest.raises(BatonError, match=r"is 3\.0 s; the request allows 1\.0 s"):
        queue.add(one, workers, 4.0)


def test_what_cannot_meet_its_deadline_any_more_is_not_computed() -> None:
    workers = Workers({"a": 0.5})
    queue = made(waiting(1, 200, deadline=3.0), workers=workers)
    workers.queues["a"] = 0.0
    (due,) = queue.due(workers, 1.5)
    assert isinstance(due.plan, BatonError)
    assert (due.charge, len(queue)) == (None, 0)


ARRIVALS = st.lists(
    st.tuples(st.floats(0, 3), st.integers(1, 900), st.floats(0.1, 20)), min_size=1, max_size=40
)


@settings(max_examples=examples(60), deadline=None)
@given(ARRIVALS, st.integers(1, 3))
def test_whoever_is_admitted_is_in_time_where_nothing_is_predicted_wrong(
    arrivals: list[tuple[float, int, float]], count: int
) -> None:
    ends = {str(worker): 0.0 for worker in range(count)}
    workers = Workers(dict.fromkeys(ends, 0.0))
    queue = AdmissionQueue(FairShares(), QueueSettings(gate=0.0))
    due: dict[int, float] = {}
    met: set[int] = set()

    def place(now: float) -> None:
        for worker, end in ends.items():
            workers.queues[worker] = end - now if end - now > 1e-9 else 0.0
        for one in queue.due(workers, now):
            workers.place(one)
            assert not isinstance(one.plan, BatonError)
            worker = one.plan.worker_id
            ends[worker] = now + workers.queues[worker]
            assert ends[worker] <= due[one.waiting.number] + 1e-6
            met.add(one.waiting.number)

    now, refusals = 0.0, 0
    for number, (gap, tokens, target) in enumerate(arrivals):
        until = now + gap
        while len(queue) and min(ends.values()) <= until:
            now = max(now, min(ends.values()))
            place(now)
        now = until
        place(now)
        one = waiting(number, tokens, now, target=target)
        try:
            queue.add(one, workers, now)
        except BatonError:
            refusals += 1
            continue
        due[number] = now + target
        place(now)
    while len(queue):
        now = max(now, min(ends.values()))
        place(now)
    assert len(met) == len(arrivals) - refusals


def test_one_that_is_late_already_does_not_wait_for_all_that_is_shorter() -> None:
    workers = Workers({"a": 5.0})
    queue = made(waiting(1, 300, target=9.0), workers=workers)
    workers.queues["a"] = 7.0  # which was predicted to be computed
    assert refused(queue, workers, 2, 100, at=1.0, target=90.0) == pytest.approx(3.0)
    # Late by as much again as it had: it is held by something else.
    assert queue.add(waiting(3, 100, at=19.0, target=90.0), workers, 19.0) is None


def test_predictions_count_by_as_much_as_first_tokens_are_late() -> None:
    workers, lateness = Workers({"a": 4.0}), Lateness()
    queue = AdmissionQueue(FairShares(), lateness=lateness)
    for _ in range(1_000):
        lateness.observe(1.0, 1.5)
    assert refused(queue, workers, 1, 200, target=8.0) == pytest.approx(1.0, abs=0.1)
    assert queue.add(waiting(2, 200, target=9.0), workers, 0.0) is None
    # The one behind would be done in 7 s, and most take 10.3 s then.
    assert refused(queue, workers, 3, 100, target=90.0) == pytest.approx(1.3, abs=0.05)
