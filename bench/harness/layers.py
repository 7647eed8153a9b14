"""Calls of Python and C in a block, by the folder of the code: steady where times are noisy."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

_ROOT = f"{Path(__file__).parents[2]}{os.sep}"
_PACKAGES = f"site-packages{os.sep}"


@dataclass(slots=True)
class LayerCalls:
    """Calls by layer."""

    python: Counter[str] = field(default_factory=Counter)
    """Of functions in Python, comprehensions included; the resumption of a coroutine is one."""
    c: Counter[str] = field(default_factory=Counter)
    """Of functions in C, by the layer of the caller."""

    def rows(self, per: int) -> list[tuple[str, float, float]]:
        """Return each layer, its calls in Python and its calls of C, the largest first.

        Args:
            per: number of requests that the calls were for.
        """
        names = sorted({*self.python, *self.c}, key=lambda name: (-self.python[name], name))
        return [(name, self.python[name] / per, self.c[name] / per) for name in names]


@contextmanager
def counted_calls() -> Iterator[LayerCalls]:
    """Count the calls of this thread in the block, which runs several times as long."""
    calls = LayerCalls()
    layers: dict[CodeType, str] = {}

    def count(frame: FrameType, event: str, _: object) -> None:
        if event not in ("call", "c_call"):
            return
        code = frame.f_code
        layer = layers.get(code)
        if layer is None:
            layer = layers[code] = _layer(code)
        (calls.python if event == "call" else calls.c)[layer] += 1

    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def _layer(code: CodeType) -> str:
    """Return `services/frontend/text`, the name of a library, `generated` or `python`."""
    path = code.co_filename
    if _PACKAGES in path:
        return Path(path.rsplit(_PACKAGES, 1)[1]).parts[0]
    if path.startswith(_ROOT):
        folders = Path(path.removeprefix(_ROOT)).parts[:-1]
        return "/".join(folders[: 3 if folders[0] == "services" else 2])
    return "generated" if path.startswith("<") and "frozen" not in path else "python"
