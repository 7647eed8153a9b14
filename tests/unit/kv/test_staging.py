"""Buffers are taken when they are needed, and used again."""

import pytest

from baton.kv.client.staging import StagedSlots, StagingPool


def test_a_slot_has_no_buffer_before_it_is_looked_at() -> None:
    staging = StagingPool(1 << 20)
    buffer = staging.acquire(8)
    staging.release(buffer)
    slots = StagedSlots(staging, [3, 5], 8)
    assert list(slots) == [3, 5]
    assert len(slots) == 2
    assert staging.acquire(8) is buffer  # not taken by them
    staging.release(buffer)
    assert slots[5] is buffer
    assert slots[5] is slots[5]
    assert slots[3] is not buffer


def test_a_buffer_that_was_sent_serves_the_next_object() -> None:
    slots = StagedSlots(StagingPool(1 << 20), range(3), 8)
    first = slots[0]
    slots.pop(0)
    slots.pop(1)  # was never looked at
    assert slots[2] is first
    assert list(slots) == [2]
    with pytest.raises(KeyError):
        slots[0]


def test_what_somebody_may_still_write_to_is_not_used_again() -> None:
    staging = StagingPool(1 << 20)
    slots = StagedSlots(staging, [0], 8)
    buffer = slots[0]
    slots.clear()
    assert staging.acquire(8) is not buffer


def test_buffers_beyond_the_limit_are_freed() -> None:
    staging = StagingPool(max_kept_bytes=16)
    buffers = [staging.acquire(8) for _ in range(3)]
    for buffer in buffers:
        staging.release(buffer)
    again = [staging.acquire(8) for _ in range(3)]
    assert len({id(one) for one in again} & {id(one) for one in buffers}) <= 2
