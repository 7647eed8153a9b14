"""What an owner grants, and when it says to ask again."""

import pytest

from baton.tenancy.limits.bucket import PlacesBucket, RateBucket
from baton.tenancy.limits.messages import Ask
from baton.tenancy.limits.owner import SETTLE_SECONDS, LimitOwner
from baton.tenancy.limits.spec import Limit, LimitId, Measure, Subject

A_MINUTE = Limit(LimitId(Subject.PROJECT, "proj_1", Measure.REQUESTS), 600, 20)
FAST = Limit(A_MINUTE.id, 6000, 100)
AT_ONCE = Limit(LimitId(Subject.PROJECT, "proj_1", Measure.AT_ONCE), 4, 4)


def need(limit: Limit, units: int = 1, *, granted: int = 0, spent: int = 0, term: int = 1) -> Ask:
    return Ask(limit, term, 0, granted, spent, 0, units, units, limit.per_minute > 0)


def test_a_new_bucket_is_empty_and_fills_at_its_rate() -> None:
    bucket = RateBucket(A_MINUTE, since=0.0)
    known = 0
    for now, granted, wait in ((0.0, 0, 0.1), (0.1, 1, 0.0), (0.15, 1, 0.05), (0.2, 2, 0.0)):
        answer = bucket.answer("a", need(A_MINUTE, granted=known), now)
        assert answer is not None
        assert (answer.granted, answer.wait) == (granted, pytest.approx(wait))
        known = granted


def test_held_and_left_are_the_burst_at_most() -> None:
    bucket = RateBucket(FAST, since=-60.0)
    first = bucket.answer("a", need(FAST, 30), 0.0)
    assert first is not None
    assert (first.granted, first.chunk) == (35, 5)
    later = bucket.answer("b", need(FAST), 60.0)
    assert later is not None
    assert later.left + later.granted == 100 - 35


def test_those_who_wait_get_turns_one_chunk_apart() -> None:
    bucket = RateBucket(FAST, since=0.0)
    waits = []
    for name in "abcd":
        answer = bucket.answer(name, need(FAST), 0.0)
        assert answer is not None
        waits.append(answer.wait)
    assert waits == pytest.approx([0.05, 0.1, 0.15, 0.2])
    again = bucket.answer("a", need(FAST), 0.001)
    assert again is not None
    assert again.wait == pytest.approx(0.049)


def test_units_that_a_frontend_was_not_told_of_are_told_with_the_next_answer() -> None:
    bucket = RateBucket(A_MINUTE, since=-60.0)
    assert bucket.answer("a", need(A_MINUTE, 3), 0.0)
    confirm = Ask(A_MINUTE, 1, 0, 0, 0, 0, confirm=True)
    answer = bucket.answer("a", confirm, 0.0)
    assert answer is not None
    assert answer.granted == 3


def test_what_is_returned_is_there_for_others_once() -> None:
    bucket = RateBucket(A_MINUTE, since=-60.0)
    assert bucket.answer("a", need(A_MINUTE, 20), 0.0)
    returned = Ask(A_MINUTE, 1, 0, 20, 20, 15)
    assert bucket.answer("a", returned, 0.0) is None
    assert bucket.answer("a", returned, 0.0) is None
    assert (bucket.free, bucket.held) == (15, 0)


def test_a_term_that_the_owner_does_not_know_begins_anew() -> None:
    bucket = RateBucket(A_MINUTE, since=-60.0)
    answer = bucket.answer("a", need(A_MINUTE, granted=7, spent=7), 0.0)
    assert answer is not None
    assert answer.restart
    assert bucket.held == 0


def test_the_newer_record_is_in_force() -> None:
    bucket = RateBucket(A_MINUTE, since=-60.0)
    lower = Limit(A_MINUTE.id, 60, 2, version=2)
    answer = bucket.answer("a", need(lower, 1), 0.0)
    assert answer is not None
    assert answer.left == 1
    bucket.answer("b", need(A_MINUTE, 1), 0.0)
    assert bucket.limit == lower


def test_places_count_what_ran_before_and_come_back_with_a_dead_frontend() -> None:
    bucket = PlacesBucket(AT_ONCE, since=1.0)
    running = Ask(AT_ONCE, 1, 3, 3, 0, 0, confirm=True)
    assert bucket.answer("a", running, 0.0)
    early = bucket.answer("b", need(AT_ONCE), 0.5)
    assert early is not None
    assert (early.granted, early.wait) == (0, 0.5)
    assert [_granted(bucket, name) for name in "bc"] == [1, 0]
    bucket.drop("a")
    assert _granted(bucket, "c") == 1


def _granted(bucket: PlacesBucket, frontend: str) -> int:
    answer = bucket.answer(frontend, need(AT_ONCE), 2.0)
    assert answer is not None
    return answer.granted


def test_an_owner_counts_from_when_it_became_that() -> None:
    limits = [
        Limit(LimitId(Subject.KEY, f"key_{number}", Measure.REQUESTS), 600, 20)
        for number in range(20)
    ]
    owner = LimitOwner("a")
    owner.observe(["a"], 0.0)
    owner.observe(["a", "b"], 100.0)
    mine = [limit for limit in limits if not _wait(owner, limit, 100.0)]
    assert 0 < len(mine) < 20
    owner.observe(["a"], 200.0)
    for limit in limits:
        at_once = _wait(owner, limit, 200.0)
        assert at_once == (0.0 if limit in mine else pytest.approx(SETTLE_SECONDS + 0.1))


def _wait(owner: LimitOwner, limit: Limit, now: float) -> float:
    answer = owner.answer("frontend", need(limit, term=int(now)), now)
    assert answer is not None
    return answer.wait


def test_buckets_that_nobody_uses_are_forgotten() -> None:
    owner = LimitOwner("a")
    owner.observe(["a"], -60.0)
    assert owner.answer("frontend", need(A_MINUTE), 0.0)
    owner.sweep(0.0)
    assert len(owner) == 1
    owner.answer("frontend", Ask(A_MINUTE, 1, 0, 1, 1, 1), 1.0)
    owner.sweep(120.0)
    assert len(owner) == 0
