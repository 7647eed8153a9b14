"""Columns of the table of parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
from typing import Any


class InvalidParameterError(ValueError):
    """A parameter is outside its limits. `field` is its name; the text names limit and value."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Limits:
    """Allowed values. For a collection, low and high limit each number, or each string's length."""

    low: float | None = None
    high: float | None = None
    above: bool = False
    """Whether `low` itself is excluded."""
    items: tuple[int, int] | None = None
    """Minimum and maximum number of entries of a collection that is set."""
    token_ids: bool = False
    """Whether the entries are ids within the model's vocabulary."""

    def describe(self) -> str:
        """Return a description of the range from low to high."""
        if self.above:
            return f"above {self.low} and up to {self.high}"
        return f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"


class Engines(Flag):
    """Engines that support a feature with every checkpoint."""

    TORCH = auto()
    VLLM = auto()
    VLLM_SPECULATING = auto()
    """vLLM with speculative decoding."""
    NONE = 0
    """No engine supports it with every checkpoint: each decides when it loads one."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that an engine may lack. Worker records and model lists contain its name."""

    name: str
    engines: Engines


class Effect(Enum):
    """What a parameter changes."""

    LOGITS = "logits"
    """Changes which token is most likely, or may be sampled."""
    DRAW = "draw"
    """Changes which token is sampled at random: no effect at temperature 0."""
    END = "end"
    TEXT = "text"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Traits:
    """Other properties of a parameter."""

    effect: Effect = Effect.LOGITS
    feature: Feature | None = None
    """Feature that an engine needs for values other than the default. None: no feature."""
    checkpoint: str = ""
    """Its name in generation_config.json. Empty: the file's value is not read."""
    vllm: str = ""
    """Its name in vLLM's SamplingParams. Empty: the engine converts the value itself."""
    vllm_values: Mapping[Any, Any] = field(default_factory=dict)
    """Values that vLLM accepts in addition to those within limits, and their meaning here."""
    note: str = ""
    """Text of docs/api.md for the field of that name. Empty: its limits."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A field of SamplingParams."""

    name: str
    type: Any
    default: Any
    limits: Limits
    traits: Traits

    @property
    def note(self) -> str:
        """Return the text of docs/api.md for the field of that name."""
        if self.traits.note:
            return self.traits.note
        items = self.limits.items
        return self.limits.describe() if items is None else f"at most {items[1]}"


def count_text(limits: Limits, count: int) -> str:
    """Return the error for a collection with that many entries."""
    fewest, most = limits.items or (0, 0)
    return f"{count} entries are out of range: {fewest} to {most}"
