"""The field `context_management` of a response."""

from typing import Any

from baton.errors import invalid_field
from services.frontend.openai.responses.input.item_types import COMPACTION
from services.frontend.requests.refusals import unsupported

_FIELD = "context_management"
_LEAST = 512
"""The lowest threshold: a shorter conversation is hardly longer than a summary."""
DEFAULT = 0
"""The threshold of a request that sets none: just below what the context has space for."""


def threshold_of(given: list[Any] | None) -> int | None:
    """Return the tokens beyond which a summary is written; DEFAULT; or None: none is written.

    Raises:
        BatonError: the field is malformed, or asks for something else.
    """
    if not given:
        return None
    if len(given) > 1:
        raise invalid_field(_FIELD, "must have one entry")
    (entry,) = given
    if not isinstance(entry, dict):
        raise invalid_field(f"{_FIELD}[0]", "must be an object with a type")
    kind = entry.get("type")
    if kind != COMPACTION:
        shown = kind[:64] if isinstance(kind, str) else kind
        raise unsupported(f"{_FIELD}[0].type", why=f"{shown!r}; use {COMPACTION}")
    for name in entry.keys() - {"type", "compact_threshold"}:
        raise invalid_field(f"{_FIELD}[0].{name[:64]}", "is not known")
    threshold = entry.get("compact_threshold")
    if threshold is None:
        return DEFAULT
    if not isinstance(threshold, int) or isinstance(threshold, bool) or threshold < _LEAST:
        field = f"{_FIELD}[0].compact_threshold"
        raise invalid_field(field, f"must be a number of tokens, at least {_LEAST}")
    return threshold
