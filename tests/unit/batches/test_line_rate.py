"""When batches complete, by the rate at which lines end."""

from collections import Counter
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.batches.line_rate import BatchWork, LineRate, lines_until


def work(number: int, left: int, done: int = 0, tenant: str = "a") -> BatchWork:
    return BatchWork(tenant, UUID(int=number), left, done)


def test_no_rate_is_known_before_a_line_ends() -> None:
    rate = LineRate(120.0)
    rate.observe(0.0, [work(1, 10)])
    rate.observe(1.0, [work(1, 10)])
    assert rate.per_second is None


def test_lines_of_all_batches_count() -> None:
    rate = LineRate(120.0)
    for second in range(11):
        rate.observe(float(second), [work(1, 90, 2 * second), work(2, 90, 3 * second, "b")])
    assert rate.per_second == pytest.approx(5.0)


def test_time_without_lines_to_run_does_not_count() -> None:
    rate = LineRate(120.0)
    rate.observe(0.0, [work(1, 10, 0)])
    rate.observe(10.0, [work(1, 5, 20)])
    rate.observe(11.0, [])
    known = rate.per_second
    rate.observe(5_000.0, [])
    rate.observe(5_001.0, [work(2, 10, 0)])
    assert known is not None and rate.per_second == known


def test_a_new_load_counts_more_than_the_old_one() -> None:
    rate, done = LineRate(120.0), 0
    for second in range(1200):
        done += 10 if second < 600 else 1
        rate.observe(float(second), [work(1, 99, done)])
    assert rate.per_second == pytest.approx(1.0, rel=0.1)


_tenants = st.sampled_from("abc")
_batches = st.lists(st.tuples(_tenants, st.integers(1, 30)), min_size=1, max_size=6)


@given(_batches, st.data())
def test_it_is_what_equal_shares_line_by_line_give(
    given_: list[tuple[str, int]], data: st.DataObject
) -> None:
    batches = [work(at, left, tenant=tenant) for at, (tenant, left) in enumerate(given_)]
    own = data.draw(st.sampled_from(batches))
    left = {batch.id: batch.left for batch in batches}
    tenants = sorted({batch.tenant for batch in batches}, key=lambda one: one == own.tenant)
    ended = 0
    while left[own.id]:
        for tenant in tenants:  # one place each, own tenant's last
            first = next((b for b in batches if b.tenant == tenant and left[b.id]), None)
            if first is not None:
                left[first.id] -= 1
                ended += 1
    assert lines_until(batches, own) == ended


@given(_batches, st.fixed_dictionaries({one: st.integers(1, 4) for one in "abc"}), st.data())
def test_it_is_close_to_what_weights_line_by_line_give(
    given_: list[tuple[str, int]], weights: dict[str, int], data: st.DataObject
) -> None:
    batches = [work(at, left, tenant=tenant) for at, (tenant, left) in enumerate(given_)]
    own = data.draw(st.sampled_from(batches))
    left = {batch.id: batch.left for batch in batches}
    turns, ended = Counter[str](), 0
    while left[own.id]:
        have = {batch.tenant for batch in batches if left[batch.id]}
        tenant = min(have, key=lambda one: ((turns[one] + 1) / weights[one], one == own.tenant))
        first = next(b for b in batches if b.tenant == tenant and left[b.id])
        left[first.id] -= 1
        turns[tenant] += 1
        ended += 1
    assert abs(lines_until(batches, own, weights) - ended) <= len(weights)


def test_a_new_batch_comes_after_those_of_its_tenant() -> None:
    running = [work(1, 10), work(2, 20), work(3, 7, tenant="b")]
    assert lines_until(running, work(0, 5)) == 35 + 7
    assert lines_until(running, work(0, 5, tenant="c")) == 5 + 5 + 5
