"""Random JSON Schemas whose outputs end even with a model of random weights."""

from random import Random
from typing import Any

_NAMES = ("id", "name", "kind", "size", "tags", "note", "left", "right")
_PATTERNS = ("^[a-f]{1,4}$", "^(yes|no)$", "^[0-9]{2}-[0-9]{2}$")
_FORMATS = ("date", "uuid", "ipv4", "time")


def random_schema(draw: Random, depth: int = 2) -> dict[str, Any]:
    """Return a schema with short documents: strings and arrays are bounded."""
    kinds = ["string", "enum", "integer", "boolean", "const", "pattern", "format"]
    if depth:
        kinds += ["object", "object", "object", "array", "union", "reference"]
    match draw.choice(kinds):
        case "string":
            low = draw.randint(0, 2)
            return {"type": "string", "minLength": low, "maxLength": low + draw.randint(0, 4)}
        case "enum":
            return {"enum": draw.sample([1, -2.5, "é", "a b", None, True, {"k": [1]}], 3)}
        case "integer":
            low = draw.randint(-99, 50)
            return {"type": "integer", "minimum": low, "maximum": low + draw.randint(0, 99)}
        case "boolean":
            return {"type": ["boolean", "null"]}
        case "const":
            return {"const": draw.choice([7, "x", [1, "é"], {"a": None}])}
        case "pattern":
            return {"type": "string", "pattern": draw.choice(_PATTERNS)}
        case "format":
            return {"type": "string", "format": draw.choice(_FORMATS)}
        case "array":
            low = draw.randint(0, 1)
            items = random_schema(draw, depth - 1)
            return {"type": "array", "items": items, "minItems": low, "maxItems": low + 2}
        case "union":
            return {"anyOf": [random_schema(draw, depth - 1) for _ in range(2)]}
        case "reference":
            inner = random_schema(draw, 0)
            pair = {"type": "array", "items": {"$ref": "#/$defs/one"}, "minItems": 2, "maxItems": 2}
            return (
                _closed({"pair": pair}, ["pair"]) | {"$defs": {"one": inner}}
                if depth == 2
                else inner
            )
        case _:
            names = draw.sample(_NAMES, draw.randint(1, 3))
            properties = {name: random_schema(draw, depth - 1) for name in names}
            return _closed(properties, draw.sample(names, draw.randint(0, len(names))))


def _closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
