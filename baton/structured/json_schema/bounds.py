"""Bounds of JSON where its schema sets none: how many digits a number has, how deep values nest.

A model that is unsure writes digits, or brackets, until its tokens are spent. The bounds are stored
in the schema itself, under a key that is an annotation to all other readers, so that all processes
that use the grammar apply the same bounds.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from baton.structured.errors import GrammarError

KEY = "x-bounds"
MAX_DIGITS = 10_000
MAX_LEVELS = 64


class Bounds(NamedTuple):
    """Bounds of JSON values; 0: none."""

    digits: int = 0
    """Maximum consecutive digits in a number, before the point and after it."""
    levels: int = 0
    """Maximum levels of arrays and objects, where a schema allows any value or refers to itself."""

    def added_to(self, text: str) -> str:
        """Return a JSON Schema's text with these bounds, or with its own if it has any."""
        bare = text.strip()
        if bare == "true":
            bare = "{}"
        if not any(self) or not bare.endswith("}") or f'"{KEY}"' in bare:
            return text
        comma = "" if bare[1:-1].strip() == "" else ","
        return f'{bare[:-1]}{comma}"{KEY}":{{"digits":{self.digits},"levels":{self.levels}}}}}'


def take_bounds(schema: Any) -> Bounds | None:
    """Remove the bounds from a schema and return them; None: there are none.

    llguidance must not see them: it supports a long `enum` only if all keywords next to it are
    known; otherwise it intersects the values, and rejects some thousands as too large.

    Args:
        schema: as of `parse_schema`; is changed.

    Raises:
        GrammarError: they are not a valid object.
    """
    if not isinstance(schema, dict) or KEY not in schema:
        return None
    said = schema.pop(KEY)
    most = {"digits": MAX_DIGITS, "levels": MAX_LEVELS}
    if not isinstance(said, Mapping) or not said.keys() <= most.keys():
        raise GrammarError(f"$.{KEY}: must be an object of {', '.join(most)}")
    for name, value in said.items():
        if type(value) is not int or not 0 <= value <= most[name]:
            raise GrammarError(f"$.{KEY}.{name}: must be a whole number from 0 to {most[name]}")
    return Bounds(**said)
