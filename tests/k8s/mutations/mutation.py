"""How a mistake is made: a value at a path of one rendered object, or the object gone."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.k8s.manifests.render import Object
from tests.k8s.manifests.view import title

GONE: Final = object()
"""Instead of a value: the field is taken out."""


@dataclass(frozen=True)
class Mutation:
    """One mistake in a good rendering."""

    rule: str
    """Which rule notices it, and no other does."""
    target: str
    """Kind/name of the object."""
    path: str = ""
    """Of the field, by dots; places of a list are numbers, names of what is there, - for its end.
    Empty: the object itself goes, or the value comes as one more."""
    value: Any = GONE
    rendering: str = "overlays/cpu"

    def __str__(self) -> str:
        value = "gone" if self.value is GONE else str(self.value)[:40]
        return f"{self.rule}-{self.target}-{self.path.rpartition('spec.')[2]}-{value}"

    def of(self, good: Sequence[Object]) -> list[Object]:
        """Return the objects with the mistake; those that were given stay as they are."""
        place = next(i for i, one in enumerate(good) if title(one).startswith(self.target))
        changed = list(good)
        if not self.path:
            if self.value is GONE:
                del changed[place]
            else:
                changed.append(self.value)
            return changed
        changed[place] = copy.deepcopy(good[place])
        *above, last = self.path.replace("\\.", "\0").split(".")
        at: Any = changed[place]
        for part in above:
            at = at[_key(at, part)]
        key = _key(at, last)
        if self.value is GONE:
            del at[key]
        elif isinstance(at, list) and key == len(at):
            at.append(self.value)
        else:
            at[key] = self.value
        return changed


def _key(at: Any, part: str) -> str | int:
    """Return the key or the place that a part of a path means."""
    part = part.replace("\0", ".")
    if not isinstance(at, list):
        return part
    if part == "-":
        return len(at)
    if part.isdigit():
        return int(part)
    return next(place for place, one in enumerate(at) if one.get("name") == part)
