"""A field of a completion's body: which bodies have it, and whether it is supported."""

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Treatment(Enum):
    """Whether a field is supported."""

    SERVED = "supported"
    IGNORED = "ignored"
    REFUSED = "not supported"


class Body(Enum):
    """The requests that have the field."""

    CHAT = "chat"
    COMPLETION = "completions"
    BOTH = "both"
    RESPONSES = "responses"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a body."""

    name: str
    body: Body
    treatment: Treatment
    note: str
    """What it does, why it changes nothing, or what to do instead: part of a sentence."""
    nothing: tuple[Any, ...] = ()
    """Of a refused field: the values, besides null, that ask for nothing."""

    def belongs_to(self, body: Body) -> bool:
        return self.body in (body, Body.BOTH)
