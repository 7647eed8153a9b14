"""What a row is: one fault, and what clients are promised meanwhile."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from bench.faults.scene import Scene

Act = Callable[[Scene], Awaitable[dict[str, Any]]]
ENGINES = ("sim", "torch")


@dataclass(frozen=True)
class Row:
    """One fault. `act` returns what proves that it happened: each value is true."""

    name: str
    what: str
    """For docs/faults.md."""
    act: Act
    gap_seconds: float = 3.0
    """Longest gap between two tokens of 99 of 100 streams that is promised."""
    frontend_dies: bool = False
    """gRPC clients try again and resume; streams over plain HTTP are cut."""
    engines: tuple[str, ...] = ENGINES


class Rows:
    """The rows of one module, in order."""

    def __init__(self) -> None:
        self.added: list[Row] = []

    def add(self, name: str, what: str, **options: Any) -> Callable[[Act], Act]:
        """Add a row whose fault a function does."""

        def add(act: Act) -> Act:
            self.added.append(Row(name, what, act, **options))
            return act

        return add
