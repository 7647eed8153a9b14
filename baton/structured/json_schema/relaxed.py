"""What of a JSON Schema can be kept, where a client does not insist on the rest."""

import json
from typing import Any

from baton.structured.errors import Path
from baton.structured.json_schema.keywords import UNSUPPORTED, drop_idle
from baton.structured.json_schema.schema import walk


def relaxed(text: str) -> dict[str, Any]:
    """Return a schema that allows all that another one does, without keywords that are not kept.

    Branches of `oneOf` may be told apart or not: here any of them will do.

    Args:
        text: an object, as `parse_schema` took it.
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
    """Take the keyword of an error out of a schema."""
    inner: Any = schema
    for step in keyword[:-1]:
        inner = inner[step]
    del inner[keyword[-1]]
