"""Prefetches begin a few at a time, at their pace, and not where they would do no good."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.settings import RouterPlacement
from services.router.replication.hot_prefixes import PrefetchTask
from services.router.replication.pacer import PrefetchPacer

MIB = 1 << 20
SETTINGS = RouterPlacement(
    prefetch_concurrent=2,
    prefetch_queued=3,
    prefetch_stale_seconds=5,
    prefetch_bytes_per_second=MIB,
    store_cooldown_seconds=30,
)


def task(store_id: str = "a", blocks: int = 8) -> PrefetchTask:
    return PrefetchTask(store_id, ("b",), b"L" * 16, bytes(16 * blocks), MIB, "team")


@pytest.fixture
def pacer() -> PrefetchPacer:
    return PrefetchPacer(SETTINGS)


def test_so_many_run_and_so_many_wait(pacer: PrefetchPacer) -> None:
    tasks = [task(name) for name in "abcdefg"]
    assert all(pacer.submit(one, 0.0) for one in tasks[:2])
    assert [pacer.next(0.0), pacer.next(0.0)] == tasks[:2]
    assert [pacer.submit(one, 0.0) for one in tasks[2:]] == [True, True, True, False, False]
    assert pacer.next(0.0) is None
    assert pacer.wait_seconds(0.0) is None, "only the end of one lets another begin"
    assert pacer.dropped == 2


def test_a_place_is_kept_for_as_long_as_the_blocks_may_take(pacer: PrefetchPacer) -> None:
    first, second, third = task("a"), task("b"), task("c")
    for one in (first, second, third):
        pacer.submit(one, 0.0)
    pacer.next(0.0)
    pacer.next(0.0)
    pacer.done(first, 3, 1.0)  # 3 MiB at 1 MiB/s
    assert pacer.next(1.0) is None
    assert pacer.wait_seconds(1.0) == pytest.approx(2.0)
    assert pacer.next(2.9) is None
    assert pacer.next(3.0) is third


def test_one_that_took_longer_than_its_pace_leaves_no_pause(pacer: PrefetchPacer) -> None:
    tasks = [task(name) for name in "abc"]
    for one in tasks:
        pacer.submit(one, 0.0)
    pacer.next(0.0)
    pacer.next(0.0)
    pacer.done(tasks[1], 3, 4.0)
    assert pacer.next(4.0) is tasks[2]


def test_what_waited_for_too_long_is_dropped(pacer: PrefetchPacer) -> None:
    old, new = task("a"), task("b")
    pacer.submit(old, 0.0)
    pacer.submit(new, 4.0)
    assert pacer.next(5.1) is new
    assert pacer.dropped == 1


def test_a_store_that_failed_is_left_alone_for_a_while_and_others_are_not(
    pacer: PrefetchPacer,
) -> None:
    failing = task("a")
    pacer.submit(failing, 0.0)
    pacer.next(0.0)
    pacer.done(failing, 0, 1.0)
    other = task("b")
    for one in (task("a"), other):
        pacer.submit(one, 30.0)
    assert pacer.next(30.0) is other
    assert pacer.dropped == 1
    again = task("a")
    pacer.submit(again, 31.0)
    assert pacer.next(31.0) is again


steps = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), st.integers(0, 2)),
        st.tuples(st.just("next"), st.just(0)),
        st.tuples(st.just("done"), st.integers(0, 8)),
        st.tuples(st.just("wait"), st.integers(1, 9)),
    ),
    max_size=60,
)


@given(steps)
def test_nothing_is_lost_and_no_more_run_than_may(history: list[tuple[str, int]]) -> None:
    pacer, now = PrefetchPacer(SETTINGS), 0.0
    submitted, running, ended = 0, [], 0
    kept: list[float] = []
    for kind, number in history:
        if kind == "submit":
            pacer.submit(task("abc"[number]), now)
            submitted += 1
        elif kind == "next":
            begun = pacer.next(now)
            if begun is not None:
                running.append((begun, now))
            busy = len(running) + sum(until > now for until in kept)
            assert busy <= SETTINGS.prefetch_concurrent
        elif kind == "done" and running:
            begun, at = running.pop(0)
            pacer.done(begun, number, now)
            kept.append(at + number)
            ended += 1
        elif kind == "wait":
            now += number / 2
    # Whoever waits as long as told, and ends what began, sees the queue come to its end.
    for _ in range(20):
        while running:
            pacer.done(running.pop(0)[0], 1, now)
            ended += 1
        if (begun := pacer.next(now)) is not None:
            running.append((begun, now))
        elif (seconds := pacer.wait_seconds(now)) is not None:
            now += seconds
    assert pacer.next(now) is None
    assert submitted == pacer.dropped + ended
