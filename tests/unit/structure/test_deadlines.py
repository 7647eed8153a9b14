"""Deadlines of tests' own calls fit every machine."""

import ast
from pathlib import Path

from tests.support.clock import DEADLINE_SECONDS

TESTS = Path(__file__).parents[2]


def short_timeouts(source: str) -> list[int]:
    """Return the lines of clients of httpx with a timeout that a stall of the machine exceeds."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("AsyncClient", "Client")
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "httpx"
        for one in node.keywords
        if one.arg == "timeout"
        and isinstance(one.value, ast.Constant)
        and isinstance(one.value.value, int | float)
        and one.value.value < DEADLINE_SECONDS
    ]


def test_a_short_timeout_is_noticed() -> None:
    assert short_timeouts("httpx.AsyncClient(timeout=30)\nhttpx.Client()") == [1]


def test_clients_of_httpx_wait_as_long_as_tests_do() -> None:
    found = {
        str(path.relative_to(TESTS)): lines
        for path in TESTS.rglob("*.py")
        if "httpx." in (source := path.read_text()) and (lines := short_timeouts(source))
    }
    assert not found
