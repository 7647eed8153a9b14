"""Circles that the import linter does not see: of modules inside one package."""

import ast
from collections.abc import Iterator
from pathlib import Path

import baton
import services
import simulator

GENERATED = ("baton.v1", "baton.internal")
"""Messages, which import one another as the protos say."""

STATEMENTS = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where statements hold others."""


def modules() -> dict[str, Path]:
    """Return the files of the modules of the three packages, by name."""
    found = {}
    for package in (baton, services, simulator):
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            name = ".".join(path.relative_to(root.parent).with_suffix("").parts)
            name = name.removesuffix(".__init__")
            if not name.startswith(GENERATED):
                found[name] = path
    return found


def imported(name: str, files: dict[str, Path]) -> Iterator[str]:
    """Yield the modules that a module imports, wherever in it: for types alone and late ones too.

    What is no module is a name in one: `from a import b` is of `a.b` where there is such a file.
    """
    nodes: list[ast.AST] = [ast.parse(files[name].read_text())]
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


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the sets of modules that each reach all of their set (Tarjan's components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in imports[module]:
            if other not in order:
                visit(other)
            if other in path:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == order[module]:
            at = path.index(module)
            component = path[at:]
            del path[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for module in imports:
        if module not in order:
            visit(module)
    return found


def test_circles_are_found() -> None:
    imports = {"a": {"b"}, "b": {"c", "d"}, "c": {"b"}, "d": set(), "e": {"a", "f"}, "f": {"e"}}
    assert sorted(circles(imports)) == [["b", "c"], ["e", "f"]]


def test_no_modules_import_each_other() -> None:
    files = modules()
    imports = {name: set(imported(name, files)) & files.keys() - {name} for name in files}
    assert circles(imports) == []
