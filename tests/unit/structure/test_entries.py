"""Arrows that the import linter does not see: modules that are started by their name."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.modules import modules

BY_NAME = ("import_module", "run_module", "run_path", "__import__", "find_spec")
ENTRIES = {("baton.serve", "services."), ("baton.cli.simulate", "simulator.command")}
"""The modules that start another package, and what they name."""


def named(path: Path) -> Iterator[str]:
    """Yield the modules of services and the simulator that calls in a file name."""
    text = path.read_text()
    if not any(name in text for name in BY_NAME):
        return  # most modules: to parse all of them takes a second
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
        if getattr(called, "id", called) not in BY_NAME:
            continue
        for one in ast.walk(node):
            if isinstance(one, ast.Constant) and str(one.value).startswith(
                ("services", "simulator")
            ):
                yield str(one.value)


def test_two_places_start_others_by_name() -> None:
    assert {(name, one) for name, path in modules().items() for one in named(path)} == ENTRIES
