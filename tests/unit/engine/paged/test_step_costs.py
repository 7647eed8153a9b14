"""Costs of steps are learned from their durations."""

import random

import pytest

from baton.engine.paged.planning.step_costs import StepCosts


def observed(steps: int, noise: float = 0.0) -> StepCosts:
    costs, draw = StepCosts(), random.Random(1)
    for _ in range(steps):
        prompt, decoding = draw.choice([0, 0, 64, 512]), draw.randrange(1, 64)
        seconds = 0.02 + 0.0004 * decoding + 0.0002 * prompt
        costs.observe(prompt, decoding, seconds * (1 + draw.uniform(-noise, noise)))
    return costs


def test_parts_are_found() -> None:
    costs = observed(100)
    assert costs.known
    assert costs.seconds(512, 10) == pytest.approx(0.02 + 0.004 + 0.1024, rel=0.01)
    assert costs.sequences_in(0.02) == pytest.approx(50, rel=0.01)
    assert costs.tokens_in(0.02) == pytest.approx(100, rel=0.01)


def test_noise_is_averaged_out() -> None:
    costs = observed(500, noise=0.2)
    assert costs.seconds(0, 30) == pytest.approx(0.032, rel=0.1)


def test_nothing_is_known_at_first_and_nothing_fits_into_no_time() -> None:
    costs = observed(3)
    assert not costs.known
    assert costs.sequences_in(0.0) == costs.tokens_in(-1.0) == 0


def test_what_never_varied_costs_nothing_negative() -> None:
    costs = StepCosts()
    for _ in range(50):
        costs.observe(0, 4, 0.02)
    assert costs.seconds(0, 4) == pytest.approx(0.02, rel=0.01)
    assert costs.seconds(0, 8) >= costs.seconds(0, 4)
    assert costs.seconds(64, 4) >= costs.seconds(0, 4)
