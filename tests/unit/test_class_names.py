"""A class's name stands for one class in the three packages, so that a search finds one subject."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import baton
import services
import simulator

ROOT = Path(baton.__file__).parents[1]
GENERATED = ("baton/v1/", "baton/internal/v1/")
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
SHARED: dict[str, str] = {}
"""Names that may stand for more than one class, and why."""


def classes(root: Path) -> Iterator[tuple[str, str]]:
    """Yield the names of the classes at the top of a package's modules, with the file."""
    for path in root.rglob("*.py"):
        file = path.relative_to(ROOT).as_posix()
        if file.startswith(GENERATED):
            continue
        for name in CLASS.findall(path.read_text()):
            yield name, file


def test_a_name_stands_for_one_class() -> None:
    files = defaultdict(list)
    for package in (baton, services, simulator):
        for name, file in classes(Path(package.__file__).parent):
            files[name].append(file)
    shared = {name: sorted(found) for name, found in files.items() if len(found) > 1}
    assert {name: found for name, found in shared.items() if name not in SHARED} == {}
    assert set(SHARED) == set(shared), "reasons for names that stand for one class by now"
