"""Location of the processes and the demo model: next to the library in a checkout, in it in a
wheel.

A wheel has them under `baton/_bundled/`, so that only `baton` is installed at the top level.
"""

from pathlib import Path

_HERE = Path(__file__).resolve().parents[1]


def root() -> Path:
    """Return the directory that has `services/` and `models/`."""
    inside = _HERE / "_bundled"
    return inside if inside.is_dir() else _HERE.parent
