"""Tools and calls from the public messages of `baton.v1`."""

import json
from collections.abc import Sequence
from typing import Any

from baton.errors import invalid_field
from baton.v1 import inference_pb2
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.requests.refusals import check_count
from services.frontend.requests.validation.tools import MAX_TOOLS
from services.frontend.text.chat_template import ChatToolCall

_CALLS = {
    inference_pb2.TOOL_CHOICE_MODE_UNSPECIFIED: CallMode.AUTO,
    inference_pb2.TOOL_CHOICE_MODE_NONE: CallMode.NONE,
    inference_pb2.TOOL_CHOICE_MODE_AUTO: CallMode.AUTO,
    inference_pb2.TOOL_CHOICE_MODE_REQUIRED: CallMode.REQUIRED,
}


def tools_of(tools: Sequence[inference_pb2.Tool]) -> tuple[ToolDefinition, ...]:
    """Return the tools of a request; their names and schemas are not checked.

    Raises:
        BatonError: INVALID_FIELD: there are too many, or parameters are not a JSON object.
    """
    check_count("tools", len(tools), MAX_TOOLS)
    return tuple(_tool(index, tool) for index, tool in enumerate(tools))


def tool_use_of(request: inference_pb2.ChatRequest) -> ToolUse | None:
    """Return the tool use of a request; None: it has none.

    Raises:
        BatonError: as for `tools_of`, or INVALID_FIELD: a tool choice without tools.
    """
    choice, tools = request.tool_choice, tools_of(request.tools)
    calls = _CALLS.get(choice.mode)
    if calls is None:
        raise invalid_field("tool_choice.mode", f"{choice.mode} is not a tool choice mode")
    if not tools:
        if choice.names or calls is CallMode.REQUIRED:
            raise invalid_field("tool_choice", "the request has no tools")
        return None
    parallel = request.parallel_tool_calls or not request.HasField("parallel_tool_calls")
    if calls is CallMode.REQUIRED and len(choice.names) == 1:
        parallel = False
    allowed = frozenset(choice.names) if choice.names else None
    return ToolUse(tools, calls, allowed, parallel)


def calls_of(calls: Sequence[inference_pb2.ToolCall]) -> list[ChatToolCall]:
    """Return the calls of a message; their arguments are not checked."""
    return [ChatToolCall(call.id, call.name, call.arguments) for call in calls]


def _tool(index: int, tool: inference_pb2.Tool) -> ToolDefinition:
    parameters: dict[str, Any] | None = None
    if tool.parameters:
        try:
            parameters = json.loads(tool.parameters)
        except (ValueError, RecursionError):
            parameters = None
        if not isinstance(parameters, dict):
            raise invalid_field(
                f"tools[{index}].parameters", "must be a JSON Schema: a JSON object"
            )
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if parameters is not None:
        function["parameters"] = parameters
    definition = {"type": "function", "function": function}
    return ToolDefinition(tool.name, definition, parameters, tool.strict)
