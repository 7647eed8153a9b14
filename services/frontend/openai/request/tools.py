"""The fourth pass over a chat completion's body: its tools, and which of them may be called."""

from collections.abc import Sequence
from typing import Any

from baton.errors import BatonError, Reason, invalid_field
from services.frontend.openai.request.functions import ToolFields
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.requests.refusals import check_count, unsupported
from services.frontend.requests.validation.tools import MAX_TOOLS

_MODES = {mode.value: mode for mode in CallMode}
_FUNCTION = "function"


def read_tool_use(fields: ToolFields) -> ToolUse | None:
    """Return what a body says of tools; None: it has none.

    Raises:
        BatonError: as of `read_tools`; INVALID_FIELD, the choice is none, or of no tools.
    """
    choice = fields.choice
    if fields.functions:
        tools = _functions(fields.definitions)
    else:
        tools = read_tools(fields.definitions)
        if not tools:
            if choice not in (None, "none", "auto"):
                raise invalid_field("tool_choice", "the request has no tools")
            return None
    calls, allowed, one = _choice(choice, functions=fields.functions)
    return ToolUse(tools, calls, allowed, fields.parallel and not one, fields.functions)


def read_tools(tools: Sequence[Any]) -> tuple[ToolDefinition, ...]:
    """Return the tools that a body names; their names and schemas are not checked.

    Raises:
        BatonError: one is no function, or there are too many.
    """
    check_count("tools", len(tools), MAX_TOOLS)
    return tuple(_tool(f"tools[{index}]", tool) for index, tool in enumerate(tools))


def _functions(functions: Sequence[Any]) -> tuple[ToolDefinition, ...]:
    check_count("functions", len(functions), MAX_TOOLS)
    return tuple(named_tool(f"functions[{index}]", each) for index, each in enumerate(functions))


def _tool(where: str, tool: Any) -> ToolDefinition:
    if not isinstance(tool, dict) or tool.get("type", _FUNCTION) != _FUNCTION:
        kind = tool.get("type") if isinstance(tool, dict) else ""
        raise not_a_function(f"{where}.type", kind)
    return named_tool(f"{where}.function", tool.get(_FUNCTION))


def named_tool(where: str, function: Any) -> ToolDefinition:
    """Return the tool that a function is, OpenAI's object; `where` is its field.

    Raises:
        BatonError: INVALID_FIELD: it has no name, or its schema is none.
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


def _choice(choice: Any, *, functions: bool) -> tuple[CallMode, frozenset[str] | None, bool]:
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
    if functions:
        raise invalid_field(
            "function_call", "must be none, auto, or an object with the name of a function"
        )
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


def not_a_function(field: str, kind: Any) -> BatonError:
    """Return the error of a tool, or of a call of one, whose type is another."""
    if isinstance(kind, str) and kind:
        return unsupported(field, why=f"type {kind[:64]!r}; use function")
    return BatonError(Reason.INVALID_FIELD, f"{field}: must be a function", field=field)
