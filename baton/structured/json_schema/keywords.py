"""Unsupported keywords of JSON Schemas: their meaning, and when they may be omitted."""

from collections.abc import Mapping
from typing import Any

UNSUPPORTED = (
    "not",
    "if",
    "then",
    "else",
    "uniqueItems",
    "contains",
    "minContains",
    "maxContains",
    "propertyNames",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "unevaluatedItems",
    "unevaluatedProperties",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    # Options of llguidance, one of which makes it ignore unsupported keywords.
    "x-guidance",
)
"""Keywords that restrict documents in an unsupported way."""
FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email"),
        *("hostname", "ipv4", "ipv6", "uuid", "uri"),
    }
)
"""Supported formats. Others are annotations, as all are by JSON Schema, section 7.2.1."""
_LOOKED_AT = frozenset({*UNSUPPORTED, "format"})
_COMBINING = frozenset({"allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas", "contains"})
"""In a subschema with one of these, more may be evaluated than its own keywords list."""
_ANYTHING: tuple[Any, ...] = (True, {})


def drop_idle(schema: dict[str, Any]) -> bool:
    """Remove keywords without effect from a subschema, and return whether there were any.

    These are formats that are annotations, and unsupported keywords with a value that every
    document satisfies. Where nothing is combined, unevaluated keywords become additional ones.
    """
    said = schema.keys() & _LOOKED_AT
    if not said:
        return False
    if _COMBINING.isdisjoint(schema):
        rest = "additionalItems" if isinstance(schema.get("items"), list) else "items"
        for name, plain in (
            ("unevaluatedProperties", "additionalProperties"),
            ("unevaluatedItems", rest),
        ):
            if name in said:
                schema.setdefault(plain, schema.pop(name))
    for name in [name for name in schema.keys() & said if _is_idle(name, schema)]:
        del schema[name]
    return schema.keys() & _LOOKED_AT != said


def _is_idle(name: str, schema: Mapping[str, Any]) -> bool:
    value = schema[name]
    match name:
        case "format":
            return isinstance(value, str) and value not in FORMATS
        case "uniqueItems" | "not" | "$recursiveAnchor":
            return value is False
        case "then" | "else":
            return "if" not in schema
        case "if":
            return schema.keys().isdisjoint(("then", "else"))
        case "minContains" | "maxContains":
            return "contains" not in schema
        case "propertyNames":
            return any(value == one for one in (*_ANYTHING, {"type": "string"}))
        case "dependentRequired" | "dependentSchemas" | "dependencies":
            return isinstance(value, dict) and not value
        case "unevaluatedItems" | "unevaluatedProperties":
            return any(value == one for one in _ANYTHING)
        case "$dynamicAnchor":
            return "$dynamicRef" not in schema
    return False
