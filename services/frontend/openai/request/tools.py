"""The tools of a chat completion's body."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from baton.errors import BatonError, Reason, invalid_field
from services.frontend.openai.request.schema import ChatBody, FunctionBody, TokenizeBody
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.requests.tools import check_tools_count
from services.frontend.requests.validate import unsupported
from services.frontend.text.chat_template import ChatToolCall

_MODES = {mode.value: mode for mode in CallMode}
_FUNCTION = "function"


class ToolCallBody(msgspec.Struct):
    """A call of a tool, in a conversation."""

    id: str | None = None
    type: str | None = None
    function: FunctionBody | None = None


def read_tools(tools: Sequence[Any] | None) -> tuple[ToolDefinition, ...]:
    """Return the tools that a body names; their names and schemas are not checked.

    Raises:
        BatonError: one is no function, or there are too many.
    """
    check_tools_count(len(tools or ()))
    return tuple(_tool(f"tools[{index}]", tool) for index, tool in enumerate(tools or ()))


def read_tool_use(body: ChatBody) -> ToolUse | None:
    """Return what a body says of tools; None: it has none.

    Raises:
        BatonError: as of `read_tools`, or `tool_choice` names what is not there.
    """
    tools = read_tools(body.tools)
    choice = body.tool_choice
    if not tools:
        if choice not in (None, "none", "auto"):
            raise invalid_field("tool_choice", "the request has no tools")
        return None
    calls, allowed, one = _choice(choice)
    return ToolUse(tools, calls, allowed, body.parallel_tool_calls is not False and not one)


def definitions(body: TokenizeBody) -> list[Mapping[str, Any]]:
    """Return the tools of a tokenize request, as chat templates take them."""
    return [tool.definition for tool in read_tools(body.tools)]


def read_calls(where: str, calls: Any) -> list[ChatToolCall]:
    """Return the calls of a message; their arguments are not checked.

    Args:
        where: the message.
        calls: its field `tool_calls`.

    Raises:
        BatonError: one is no call of a function.
    """
    try:
        read = msgspec.convert(calls or [], list[ToolCallBody])
    except msgspec.ValidationError as error:
        raise invalid_field(f"{where}.tool_calls", str(error)) from None
    made = []
    for index, call in enumerate(read):
        if call.function is None or call.type not in (None, _FUNCTION):
            raise _not_a_function(f"{where}.tool_calls[{index}].type", call.type)
        made.append(ChatToolCall(call.id or "", call.function.name, arguments_of(call.function)))
    return made


def arguments_of(function: FunctionBody) -> str:
    """Return the arguments of a call as text, as they were given: they need not be JSON."""
    given = function.arguments
    if isinstance(given, str):
        return given
    return "" if given is None else json.dumps(given, ensure_ascii=False)


def _tool(where: str, tool: Any) -> ToolDefinition:
    if not isinstance(tool, dict) or tool.get("type", _FUNCTION) != _FUNCTION:
        raise _not_a_function(f"{where}.type", tool.get("type") if isinstance(tool, dict) else "")
    return tool_of(f"{where}.function", tool.get(_FUNCTION))


def tool_of(where: str, function: Any) -> ToolDefinition:
    """Return the tool that a function is; its name and schema are not checked.

    Args:
        where: the function.
        function: OpenAI's object.

    Raises:
        BatonError: INVALID_FIELD, it is none.
    """
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise invalid_field(where, "must be an object with a name")
    parameters, strict = function.get("parameters"), function.get("strict")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid_field(f"{where}.parameters", "must be a JSON Schema: an object")
    if strict is not None and not isinstance(strict, bool):
        raise invalid_field(f"{where}.strict", "must be true or false")
    told = {key: value for key, value in function.items() if key != "strict" and value is not None}
    definition = {"type": _FUNCTION, _FUNCTION: told}
    return ToolDefinition(function["name"], definition, parameters, bool(strict))


def _choice(choice: Any) -> tuple[CallMode, frozenset[str] | None, bool]:
    """Return whether there are calls, which tools may be called, and whether it is one call."""
    if choice is None:
        return CallMode.AUTO, None, False
    if isinstance(choice, str) and choice in _MODES:
        return _MODES[choice], None, False
    if isinstance(choice, dict):
        match choice.get("type"):
            case "function":
                return CallMode.REQUIRED, frozenset({_name("tool_choice", choice)}), True
            case "allowed_tools":
                return _allowed(choice.get("allowed_tools", choice))
    modes = ", ".join(_MODES)
    raise invalid_field(
        "tool_choice", f"must be {modes}, or an object of type function or allowed_tools"
    )


def _allowed(allowed: Any) -> tuple[CallMode, frozenset[str], bool]:
    field = "tool_choice.allowed_tools"
    if not isinstance(allowed, dict) or allowed.get("mode") not in ("auto", "required"):
        raise invalid_field(f"{field}.mode", "must be auto or required")
    tools = allowed.get("tools")
    if not isinstance(tools, list) or not tools:
        raise invalid_field(f"{field}.tools", "must be a list of at least one tool")
    names = frozenset(_name(f"{field}.tools[{at}]", one) for at, one in enumerate(tools))
    return _MODES[allowed["mode"]], names, False


def _name(where: str, named: Any) -> str:
    function = named.get(_FUNCTION) if isinstance(named, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise invalid_field(f"{where}.function.name", "must be the name of a tool")
    return name


def _not_a_function(field: str, kind: Any) -> BatonError:
    if isinstance(kind, str) and kind:
        return unsupported(field, why=f"type {kind[:64]!r}; use function")
    return BatonError(Reason.INVALID_FIELD, f"{field}: must be a function", field=field)
