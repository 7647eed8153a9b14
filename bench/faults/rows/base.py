"""A row: one fault, and the promises to clients during it."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.faults.scene import Scene

Act = Callable[[Scene], Awaitable[dict[str, Any]]]
ENGINES = ("sim", "torch")


@dataclass(frozen=True)
class Row:
    """One fault. `act` injects it and returns the proof that it happened: each value is true."""

    name: str
    what: str
    """The description in docs/faults.md."""
    act: Act
    gap_seconds: float = 3.0
    """The promised longest gap between two tokens, for 99 of 100 streams."""
    frontend_dies: bool = False
    """Whether a frontend dies: gRPC clients retry and resume; streams over plain HTTP are cut
    off."""
    engines: tuple[str, ...] = ENGINES


class Rows:
    """The rows of one module, in order."""

    def __init__(self) -> None:
        self.added: list[Row] = []

    def add(self, name: str, what: str, **options: Any) -> Callable[[Act], Act]:
        """Add a row whose fault the decorated function injects."""

        def add(act: Act) -> Act:
            self.added.append(Row(name, what, act, **options))
            return act

        return add
