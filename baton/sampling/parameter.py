"""What a row of the table of parameters has."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, Flag, auto
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

    def describe(self) -> str:
        """Return in words what low and high allow."""
        if self.above:
            return f"above {self.low} and up to {self.high}"
        return f"at least {self.low}" if self.high is None else f"{self.low} to {self.high}"


class Engines(Flag):
    """Engines that support a feature with every checkpoint."""

    TORCH = auto()
    VLLM = auto()
    VLLM_SPECULATING = auto()
    """vLLM where it verifies proposed tokens."""
    NONE = 0
    """Each decides when it loads a checkpoint."""


@dataclass(frozen=True, slots=True)
class Feature:
    """What an engine may lack. Its name is in the worker's record and in models' lists."""

    name: str
    engines: Engines


class Effect(Enum):
    """What a parameter changes."""

    LOGITS = "logits"
    """Which token is the most likely, or may be sampled."""
    DRAW = "draw"
    """Which token is sampled by chance: nothing at temperature 0."""
    END = "end"
    TEXT = "text"
    REPORT = "report"


@dataclass(frozen=True, slots=True)
class Traits:
    """What else differs between parameters."""

    effect: Effect = Effect.LOGITS
    feature: Feature | None = None
    """What an engine must support where the value is not the default. None: every engine does."""
    checkpoint: str = ""
    """Its name in generation_config.json. Empty: the file's value is not read."""
    vllm: str = ""
    """Its name in vLLM's SamplingParams. Empty: the engine converts the value itself."""
    vllm_values: Mapping[Any, Any] = field(default_factory=dict)
    """Values that vLLM takes besides those within limits, and what they mean here."""
    note: str = ""
    """What docs/api.md says of the field of that name. Empty: its limits."""


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
        """What docs/api.md says of the field of that name."""
        if self.traits.note:
            return self.traits.note
        items = self.limits.items
        return self.limits.describe() if items is None else f"at most {items[1]}"


def count_text(limits: Limits, count: int) -> str:
    """Return what is wrong with a collection of that many entries."""
    fewest, most = limits.items or (0, 0)
    return f"{count} entries are out of range: {fewest} to {most}"
