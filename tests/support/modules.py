"""The modules of the released packages, except generated messages."""

from pathlib import Path

import baton
import services
import simulator

PACKAGES = (baton, services, simulator)
ROOT = Path(baton.__file__).parents[1]
_GENERATED = ("baton.v1", "baton.internal")


def modules() -> dict[str, Path]:
    """Return the files of all modules, by name."""
    found = {}
    for package in PACKAGES:
        for path in (ROOT / package.__name__).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            if not name.startswith(_GENERATED):
                found[name] = path
    return found
