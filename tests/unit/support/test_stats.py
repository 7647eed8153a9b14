"""Statistics of benchmarks."""

from hypothesis import given
from hypothesis import strategies as st

from bench.harness.stats import auc

SAMPLES = st.lists(st.integers(0, 9), min_size=1, max_size=20)


@given(SAMPLES, SAMPLES)
def test_auc_is_how_often_one_is_larger_and_ties_count_half(
    ones: list[int], others: list[int]
) -> None:
    wins = sum((one > other) + (one == other) / 2 for one in ones for other in others)
    assert abs(auc(ones, others) - wins / (len(ones) * len(others))) < 1e-9
    assert abs(auc(ones, others) + auc(others, ones) - 1) < 1e-9


def test_auc_tells_apart_what_differs() -> None:
    assert auc([3, 4], [1, 2]) == 1
    assert auc([1, 2], [3, 4]) == 0
