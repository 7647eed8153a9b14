"""How many replicas an HPA sets."""

import pytest

from baton.autoscaling.hpa import desired_replicas


@pytest.mark.parametrize(
    ("value", "target", "replicas", "wanted"),
    [
        (7, 1, 2, 7),
        (2.1, 1, 2, 2),  # within 10 %
        (2.3, 1, 2, 3),
        (11, 1, 10, 10),
        (12, 1, 10, 12),
        (9, 1, 10, 10),
        (8, 1, 10, 8),
        (46, 8, 2, 6),
        (0, 1, 3, 1),
        (1, 1, 0, 1),
        (99, 1, 4, 16),
    ],
)
def test_the_formula_of_an_hpa(value: float, target: float, replicas: int, wanted: int) -> None:
    assert desired_replicas(value, target, replicas, 1, 16) == wanted
