"""The validator's part for tools."""

import re

from baton.errors import invalid_field
from services.frontend.output.definitions import ToolUse
from services.frontend.requests.refusals import check_count
from services.frontend.text.json_depth import MAX_DEPTH, deeper

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAMES = "must have 1 to 64 characters: letters, digits, _, - and dots"


def check_tools(use: ToolUse) -> None:
    """Check the tools of a request.

    Raises:
        BatonError: the first invalid field.
    """
    check_count(use.field, len(use.tools), MAX_TOOLS)
    names: set[str] = set()
    for index, tool in enumerate(use.tools):
        if not _NAME.fullmatch(tool.name):
            raise invalid_field(f"{use.field_of(index)}.name", _NAMES)
        if tool.name in names:
            field = f"{use.field_of(index)}.name"
            raise invalid_field(field, f"{tool.name!r} is already the name of another tool")
        names.add(tool.name)
        if (tool.parameters or {}).get("type", "object") not in ("object", ["object"]):
            raise invalid_field(f"{use.field_of(index)}.parameters.type", "must be object")
        if deeper(tool.definition, MAX_DEPTH):
            raise invalid_field(use.field_of(index), f"is nested more than {MAX_DEPTH} levels deep")
    for name in sorted(use.allowed or ()):
        if name not in names:
            raise invalid_field(use.choice_field, f"{name[:64]!r} is not one of the {use.field}")
