"""The order of tests, and how often each runs, where a run says so: see scripts/verdict."""

import os
import random
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

import pytest

ORDER_ENV = "TESTS_ORDER"
"""A seed: files run in the order that it draws, and so do the tests of each."""
ROUNDS_ENV = "TESTS_ROUNDS"
"""How often each test runs, in one process or several."""


def ordered(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Return tests in the order that the environment asks for.

    All processes of a run draw the same one, as xdist wants. Tests of a file stay together: what
    they share is made once.
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
    """Let a test run as often as the environment asks for: all of a file, and then all again."""
    if rounds := int(os.environ.get(ROUNDS_ENV, "1")) - 1:
        metafunc.fixturenames.append("round_")
        ids = [f"round{number}" for number in range(rounds + 1)]
        metafunc.parametrize("round_", range(rounds + 1), indirect=True, scope="session", ids=ids)
