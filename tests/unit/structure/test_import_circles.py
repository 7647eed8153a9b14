"""Circles that the import linter does not see: of modules inside one package."""

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from tests.support.modules import modules

STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where statements hold others."""


def imported(path: Path, files: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a file imports, wherever in it: for types alone and late ones too.

    What is no module is a name in one: `from a import b` is of `a.b` where there is such a file.
    """
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in files else node.module
        for statements in STATEMENTS:  # expressions, most of a tree, hold no imports
            held = getattr(node, statements, ())
            nodes += held if isinstance(held, list) else ()


def circle(imports: Mapping[str, set[str]]) -> list[str]:
    """Return modules of which each imports the next; empty: there is no such circle."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_circles_are_found() -> None:
    alone = {"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": set()}
    assert circle(alone) == []
    assert set(circle(alone | {"c": {"b"}})) == {"b", "c"}
    assert set(circle(alone | {"e": {"a", "f"}, "f": {"e"}})) == {"e", "f"}


def test_no_modules_import_each_other() -> None:
    files = modules()
    imports = {
        name: set(imported(path, files)) & files.keys() - {name} for name, path in files.items()
    }
    assert circle(imports) == []
