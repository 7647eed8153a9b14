"""The validator's part for tools: what is asked of them, and calls in a conversation."""

import re
from collections.abc import Sequence

from baton.errors import invalid_field
from services.frontend.output.definitions import ToolUse
from services.frontend.requests.refusals import too_many
from services.frontend.text.chat_template import ChatMessage
from services.frontend.text.json_depth import MAX_DEPTH, deeper

MAX_TOOLS = 128
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_NAMES = "must have 1 to 64 characters: letters, digits, _, - and dots"
_MAX_CALLED = 256
"""Characters of the name in a call, which a model may have made up."""


def check_tools(use: ToolUse) -> None:
    """Check the tools of a request.

    Raises:
        BatonError: the first field that is wrong.
    """
    if len(use.tools) > MAX_TOOLS:
        raise too_many(use.field, len(use.tools), MAX_TOOLS)
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


def check_calls(messages: Sequence[ChatMessage]) -> None:
    """Check the calls in a conversation. They are history, which stands as the model wrote it:
    `max_tokens` may have cut arguments, and names need be none of a tool's.

    Raises:
        BatonError: the first field that is wrong.
    """
    for at, message in enumerate(messages):
        if message.tool_calls and message.role != "assistant":
            raise invalid_field(
                f"messages[{at}].tool_calls",
                "only messages of the role assistant can have tool calls",
            )
        for index, call in enumerate(message.tool_calls):
            if len(call.name) > _MAX_CALLED:
                raise invalid_field(
                    f"messages[{at}].tool_calls[{index}].function.name",
                    f"must have at most {_MAX_CALLED} characters",
                )
