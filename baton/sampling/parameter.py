"""What a parameter is: its name, its type, its default and its limits."""

from dataclasses import dataclass
from typing import Any


class InvalidParameterError(ValueError):
    """A parameter is outside of its limits. `field` is its name; the text says limit and value."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """What a value may be. Of a collection, low and high limit each number, or string's length."""

    low: float | None = None
    high: float | None = None
    above: bool = False
    """Whether `low` itself is out."""
    items: tuple[int, int] | None = None
    """The fewest and the most entries of a collection that is given."""
    token_ids: bool = False
    """Whether the entries are ids within the model's vocabulary."""
    feature: str = ""
    """What an engine must support where the value is not the default; empty: every engine does."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of SamplingParams."""

    name: str
    type: Any
    default: Any
    limits: Limits


def count_text(limits: Limits, count: int) -> str:
    """Return what is wrong with a collection of that many entries."""
    fewest, most = limits.items or (0, 0)
    return f"{count} entries are out of range: {fewest} to {most}"
