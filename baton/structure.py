"""What the text of an output must look like."""

from dataclasses import dataclass
from typing import Literal, Self

from baton.v1 import common_pb2


@dataclass(frozen=True, slots=True)
class Structure:
    """A form that an output's text must have, as of `baton.v1.Structure`."""

    kind: Literal["json_schema", "regex", "grammar"]
    text: str
    """The schema as JSON, the regular expression, or the grammar."""

    @classmethod
    def from_proto(cls, structure: common_pb2.Structure) -> Self | None:
        """Make the struct of a message; None of one that names no form. The text is not checked."""
        kind = structure.WhichOneof("form")
        return None if kind is None else cls(kind, getattr(structure, kind))
