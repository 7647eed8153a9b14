"""What an owner grants, and when it says to ask again."""

import math

import pytest

from baton.tenancy.limits.bucket import PlacesBucket, RateBucket
from baton.tenancy.limits.budget.roll_call import view_of
from baton.tenancy.limits.messages import Ask
from baton.tenancy.limits.owner import SETTLE_SECONDS, LimitOwner
from baton.tenancy.limits.spec import Limit, LimitId, Measure, Subject

A_MINUTE = Limit(LimitId(Subject.PROJECT, "proj_1", Measure.REQUESTS), 600, 20)
SLOW = Limit(A_MINUTE.id, 60, 60)
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


def test_what_is_on_its_way_is_not_granted_again() -> None:
    bucket = RateBucket(SLOW, since=-60.0)
    grants = []
    for want, known in ((1, 0), (5, 0), (5, 1), (6, 6)):
        answer = bucket.answer("a", Ask(SLOW, 1, 0, known, known, 0, need=1, want=want), 0.0)
        assert answer is not None
        grants.append((answer.granted, answer.wait))
    # Five wait, six wait, and at last six more.
    assert grants == [(1, 0.0), (5, 0.0), (6, 0.0), (12, 0.0)]


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


def test_an_owner_that_was_not_told_counts_from_when_it_became_that() -> None:
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
    asked = {limit.id: owner.answer("frontend", need(limit, term=200), 200.0) for limit in limits}
    assert {limit.id for limit in mine} == {one for one, answer in asked.items() if answer}
    owner.serve(200.0 + SETTLE_SECONDS - 0.01)
    assert not owner.take_pushed(), "frontends may say yet what they were granted"
    owner.serve(200.0 + SETTLE_SECONDS)
    waits = {answer.limit_id: answer.wait for _, answer in owner.take_pushed()}
    assert waits == {one.id: pytest.approx(0.1) for one in limits if one not in mine}
    assert not owner.waiting


def _wait(owner: LimitOwner, limit: Limit, now: float) -> float:
    answer = owner.answer("frontend", need(limit, term=int(now)), now)
    return answer.wait if answer is not None else math.inf


def told_owner(*frontends: str) -> LimitOwner:
    """Return one that has just become an owner, and asks these frontends."""
    owner = LimitOwner("a")
    owner.roll_call.observe(frontends)
    owner.observe(["a"], 0.0)
    return owner


def test_a_new_owner_grants_what_nobody_was_granted_lately() -> None:
    owner = told_owner("f", "g")
    ask = Ask(SLOW, 1, 0, 0, 0, 0, need=1, want=60, recent=20)
    assert owner.answer("f", ask, 0.1) is None
    owner.roll_call.heard("f", 1, view_of(["a"]))
    owner.serve(0.2)
    assert not owner.take_pushed(), "g has not said what it was granted"
    assert owner.answer("g", Ask(SLOW, 1, 0, 0, 0, 0, recent=10), 0.3) is None
    owner.roll_call.heard("g", 1, view_of(["a"]))
    owner.serve(0.3)
    ((name, answer),) = owner.take_pushed()
    assert (name, answer.granted, answer.left) == ("f", 30, 0)


def test_what_is_said_of_recent_grants_later_changes_nothing() -> None:
    owner = told_owner("f")
    owner.roll_call.heard("f", 1, view_of(["a"]))
    assert _granted_of(owner, "f", recent=0, want=40) == 40
    assert _granted_of(owner, "f", recent=40, granted=40, want=40) == 60


def test_a_frontend_of_an_earlier_release_makes_a_new_owner_begin_empty() -> None:
    owner = told_owner("f", "old")
    owner.roll_call.heard("f", 1, view_of(["a"]))
    owner.roll_call.heard("old", 1, view_of(["a"]), recent=False)
    assert owner.answer("f", need(SLOW), 0.1) is None
    owner.serve(SETTLE_SECONDS)
    ((_, answer),) = owner.take_pushed()
    assert answer.granted == 0
    owner.roll_call.observe(["f"])
    assert _granted_of(owner, "f", recent=0, want=60) == 60


def test_before_an_owner_knows_the_frontends_it_grants_nothing_that_it_cannot_know() -> None:
    owner = told_owner()
    owner.roll_call.heard("f", 1, view_of(["a"]))
    assert owner.answer("f", need(SLOW), 0.1) is None
    owner.roll_call.observe(["g"])
    assert owner.answer("g", need(SLOW), 0.1) is None, "it did not answer the roll"


def _granted_of(
    owner: LimitOwner, frontend: str, *, recent: int, want: int, granted: int = 0
) -> int:
    ask = Ask(SLOW, 1, 0, granted, granted, 0, need=1, want=want, recent=recent)
    answer = owner.answer(frontend, ask, SETTLE_SECONDS)
    assert answer is not None
    return answer.granted


def test_buckets_that_nobody_uses_are_forgotten() -> None:
    owner = LimitOwner("a")
    owner.observe(["a"], -60.0)
    assert owner.answer("frontend", need(A_MINUTE), 0.0)
    owner.sweep(0.0)
    assert len(owner) == 1
    owner.answer("frontend", Ask(A_MINUTE, 1, 0, 1, 1, 1), 1.0)
    owner.sweep(120.0)
    assert len(owner) == 0
