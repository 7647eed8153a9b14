"""A class's name stands for one class in the released packages: a search finds one subject."""

import re
from collections import defaultdict

from tests.support.modules import modules

CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
SHARED: dict[str, str] = {}
"""Names that may stand for more than one class, and why."""


def test_a_name_stands_for_one_class() -> None:
    places = defaultdict(list)
    for module, path in modules().items():
        for name in CLASS.findall(path.read_text()):
            places[name].append(module)
    shared = {name: sorted(found) for name, found in places.items() if len(found) > 1}
    assert {name: found for name, found in shared.items() if name not in SHARED} == {}
    assert set(SHARED) == set(shared), "reasons for names that stand for one class by now"
