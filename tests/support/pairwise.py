"""Few combinations of parameters that contain every pair of values."""

from collections.abc import Sequence
from itertools import combinations, product
from typing import Any


def pairwise(*parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Return rows, one value per parameter: any two values of two parameters are together in a row.

    Greedy over the full product, in its order: the row with the most new pairs is next. For test
    matrices whose full product costs more than it reveals.
    """
    positions = [range(len(values)) for values in parameters]
    rows = list(product(*positions))
    missing = {pair for row in rows for pair in _pairs(row)}
    chosen = []
    while missing:
        best = max(rows, key=lambda row: len(missing.intersection(_pairs(row))))
        missing.difference_update(_pairs(best))
        chosen.append(tuple(values[at] for values, at in zip(parameters, best, strict=True)))
    return chosen


def _pairs(row: tuple[int, ...]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    return list(combinations(enumerate(row), 2))
