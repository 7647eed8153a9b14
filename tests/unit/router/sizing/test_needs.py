"""The formulas, with numbers that can be checked by hand."""

import math

import pytest

from services.router.sizing.decision import SizingReason
from services.router.sizing.demand import NO_DEMAND, ModelDemand
from services.router.sizing.needs import decode_need, prefill_need
from services.router.sizing.settings import SizingSettings
from services.router.sizing.step_times import BatchStepTimes

SETTINGS = SizingSettings()


def test_arrivals_use_seven_tenths_of_the_learned_rate() -> None:
    # 2,100 tokens a second of 1,000 per replica, at 70 %.
    need = prefill_need(ModelDemand(arrived_tokens=63_000), 0, 1, 1_000, 2.0, SETTINGS)
    assert need.replicas == pytest.approx(3.0)
    assert need.reason is SizingReason.ARRIVALS


def test_a_backlog_beyond_half_of_the_target_is_computed_within_a_minute() -> None:
    # Two replicas compute 2,000 tokens within 1 s; the other 120,000 take two replicas a minute.
    need = prefill_need(NO_DEMAND, 122_000, 2, 1_000, 2.0, SETTINGS)
    assert need.replicas == pytest.approx(2.0)
    assert need.reason is SizingReason.BACKLOG
    assert prefill_need(NO_DEMAND, 2_000, 2, 1_000, 2.0, SETTINGS).replicas == 0


def test_rejected_requests_count_up_to_the_accepted_ones() -> None:
    alone = prefill_need(ModelDemand(arrived_tokens=21_000), 0, 1, 1_000, 2.0, SETTINGS)
    some = ModelDemand(arrived_tokens=21_000, refused_tokens=10_500)
    retried = ModelDemand(arrived_tokens=21_000, refused_tokens=10_000_000)
    assert alone.replicas == pytest.approx(1.0)
    assert prefill_need(some, 0, 1, 1_000, 2.0, SETTINGS).replicas == pytest.approx(1.5)
    assert prefill_need(retried, 0, 1, 1_000, 2.0, SETTINGS).replicas == pytest.approx(2.0)


def test_without_a_rate_nothing_is_known_unless_nothing_is_to_do() -> None:
    assert prefill_need(NO_DEMAND, 0, 1, None, 2.0, SETTINGS).known
    assert not prefill_need(NO_DEMAND, 1, 1, None, 2.0, SETTINGS).known
    assert not prefill_need(ModelDemand(arrived_tokens=1), 0, 1, None, 2.0, SETTINGS).known


def test_whichever_of_pages_and_batch_is_less_binds() -> None:
    # 64 sequences at 32 of 40 per replica; pages for 1.25 of them.
    need = decode_need(64, 1_000, 1_000, 40.0, SETTINGS)
    assert (need.replicas, need.reason) == (pytest.approx(2.0), SizingReason.BATCH)
    need = decode_need(64, 4_000, 1_000, 40.0, SETTINGS)
    assert (need.replicas, need.reason) == (pytest.approx(5.0), SizingReason.KV)


def test_streams_of_which_neither_pages_nor_batch_are_known_are_not_known() -> None:
    assert not decode_need(5, 0, None, math.inf, SETTINGS).known
    assert decode_need(5, 0, None, 8.0, SETTINGS).known
    assert decode_need(5, 10, 100, math.inf, SETTINGS).known
    assert decode_need(0, 0, None, math.inf, SETTINGS).known


def test_the_batch_within_a_target_is_read_off_a_line() -> None:
    steps = BatchStepTimes()
    for batch in (1, 4, 16, 32):
        steps.observe(batch, 0.010 + 0.001 * batch)
    assert steps.batch_within(0.050) == pytest.approx(40.0)


def test_batches_of_one_size_limit_only_if_they_miss_the_target() -> None:
    steps = BatchStepTimes()
    steps.observe(8, 0.020)
    assert steps.batch_within(0.050) == math.inf
    assert steps.batch_within(0.010) == pytest.approx(4.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_step_that_is_no_time_is_ignored(seconds: float) -> None:
    steps = BatchStepTimes()
    steps.observe(8, seconds)
    steps.observe(0, 0.02)
    assert steps.batch_within(0.05) == math.inf


def test_a_target_that_one_stream_misses_limits_nothing() -> None:
    steps = BatchStepTimes()
    for batch in (1, 2, 8):
        steps.observe(batch, 0.080 + 0.001 * batch)
    assert steps.batch_within(0.050) == math.inf


def test_steps_that_do_not_grow_limit_nothing() -> None:
    steps = BatchStepTimes()
    for batch in (1, 8, 64):
        steps.observe(batch, 0.02)
    assert steps.batch_within(0.05) == math.inf


def test_what_was_learned_fades() -> None:
    steps = BatchStepTimes()
    for batch in (1, 16):
        steps.observe(batch, 0.001 * batch)
    steps.fade(20_000.0)
    for batch in (1, 16):
        steps.observe(batch, 0.002 * batch)
    assert steps.batch_within(0.048) == pytest.approx(24.0, rel=0.01)
