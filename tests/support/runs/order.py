"""The order of tests, and the number of their runs, if a run sets them: see scripts/verdict."""

import os
import random
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

ORDER_ENV = "TESTS_ORDER"
"""A seed that determines the order of files, and of the tests in each."""
ROUNDS_ENV = "TESTS_ROUNDS"
"""How often each test runs, in one process or several."""


def ordered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests in the order that the environment sets.

    All processes of a run use the same order, as xdist requires. Tests of a file stay together:
    their shared fixtures are created once.
    """
    if not (seed := os.environ.get(ORDER_ENV)):
        return list(items)
    draw = random.Random(seed)
    files = [list(tests) for _, tests in groupby(items, _file)]
    draw.shuffle(files)
    for tests in files:
        draw.shuffle(tests)
    return [test for tests in files for test in tests]


def _file(item: pytest.Item) -> Path:
    return item.path


@pytest.fixture(scope="session")
def round_() -> None:
    """One of the rounds of a run."""


def repeat(metafunc: pytest.Metafunc) -> None:
    """Run a test as often as the environment sets: all tests of a file, and then all again."""
    if rounds := int(os.environ.get(ROUNDS_ENV, "1")) - 1:
        metafunc.fixturenames.append("round_")
        ids = [f"round{number}" for number in range(rounds + 1)]
        metafunc.parametrize("round_", range(rounds + 1), indirect=True, scope="session", ids=ids)
