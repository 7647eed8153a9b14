"""Arrows that the import linter does not see: modules that are started by their name."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import baton
import services
import simulator

BY_NAME = ("import_module", "run_module", "run_path", "__import__", "find_spec")
ENTRIES = {
    "baton": {("serve.py", "services."), ("cli/simulate.py", "simulator.command")},
    "services": set(),
    "simulator": set(),
}
"""Of each package, the files that start another of the three, and what they name."""


def named(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the modules of the three packages that calls name, with the file."""
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = (
                node.func.attr
                if isinstance(node.func, ast.Attribute)
                else getattr(node.func, "id", "")
            )
            if called not in BY_NAME:
                continue
            for text in ast.walk(node):
                if isinstance(text, ast.Constant) and str(text.value).startswith(
                    ("services", "simulator")
                ):
                    yield path.relative_to(root).as_posix(), str(text.value)


@pytest.mark.parametrize("package", [baton, services, simulator])
def test_two_places_start_others_by_name(package: object) -> None:
    name = package.__name__  # type: ignore[attr-defined]
    root = Path(package.__file__).parent  # type: ignore[attr-defined]
    assert set(named(root)) == ENTRIES[name]
