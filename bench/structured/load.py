"""The load of bench.structured.steps. Imports only the standard library, as peers use it."""

from typing import Any

BATCH = 32
PROMPT = 128
STEPS = 40
WARM_UP_STEPS = 4
MAX_TOKENS = 1024
_ITEMS: list[Any] = [
    {},
    {"type": "string"},
    {"enum": [f"value {i}" for i in range(200)]},
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}},
    {"anyOf": [{"type": "string", "pattern": "^[a-z]{1,200}$"}, {"type": "boolean"}]},
]
SCHEMAS: list[dict[str, Any]] = [
    {"type": "array", "items": items, "minItems": 1000} for items in _ITEMS
]
"""Schemas of the streams, in turns; no output ends within a measurement."""


def prompt(number: int) -> tuple[int, ...]:
    """Return the tokens of a stream's prompt."""
    return tuple((number * 131 + i * 7) % 250 for i in range(PROMPT))
