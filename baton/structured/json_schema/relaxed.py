"""Relax a JSON Schema to its supported part, for clients that do not insist on the rest."""

import json
from typing import Any

from baton.structured.errors import Path
from baton.structured.json_schema.keywords import UNSUPPORTED, drop_idle
from baton.structured.json_schema.schema import walk


def relaxed(text: str) -> dict[str, Any]:
    """Return a schema without unsupported keywords, which allows every value that the given one
    allows.

    Branches of `oneOf` need not be exclusive: here any of them may match.

    Args:
        text: an object, as `parse_schema` accepted it.
    """
    schema: dict[str, Any] = json.loads(text)
    for _, each in walk(schema):
        drop_idle(each)
        for name in UNSUPPORTED:
            each.pop(name, None)
        branches = each.get("oneOf")
        if isinstance(branches, list):
            del each["oneOf"]
            if "anyOf" not in each:
                each["anyOf"] = branches
            else:
                each["allOf"] = [*each.get("allOf", ()), {"anyOf": branches}]
    return schema


def drop(schema: dict[str, Any], keyword: Path) -> None:
    """Remove the keyword of an error from a schema."""
    inner: Any = schema
    for step in keyword[:-1]:
        inner = inner[step]
    del inner[keyword[-1]]
