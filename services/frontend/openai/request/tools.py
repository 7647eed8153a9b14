"""The fourth pass over a chat completion's body: its tools, and which of them may be called."""

from collections.abc import Sequence
from typing import Any

from baton.errors import BatonError, Reason, invalid_field
from services.frontend.openai.request.functions import ToolFields
from services.frontend.openai.tools.choice import CHOICES, CUSTOM, FUNCTION, read_choice
from services.frontend.openai.tools.custom import custom_tool
from services.frontend.output.definitions import ToolDefinition, ToolUse
from services.frontend.requests.refusals import check_count, unsupported
from services.frontend.requests.validation.tools import MAX_TOOLS


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
    calls, allowed, one = read_choice(choice, _ChatChoice(functions=fields.functions))
    places: tuple[str, ...] = ()
    if any(tool.text is not None for tool in tools):
        kinds = (FUNCTION if tool.text is None else CUSTOM for tool in tools)
        places = tuple(f"tools[{at}].{kind}" for at, kind in enumerate(kinds))
    parallel = fields.parallel and not one
    return ToolUse(tools, calls, allowed, parallel, fields.functions, places)


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
    if isinstance(tool, dict) and tool.get("type") == CUSTOM:
        return custom_tool(f"{where}.{CUSTOM}", tool.get(CUSTOM), nested=True)
    if not isinstance(tool, dict) or tool.get("type", FUNCTION) != FUNCTION:
        kind = tool.get("type") if isinstance(tool, dict) else ""
        raise not_a_function(f"{where}.type", kind)
    return named_tool(f"{where}.function", tool.get(FUNCTION))


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
    definition = {"type": FUNCTION, FUNCTION: told}
    return ToolDefinition(function["name"], definition, parameters, bool(strict))


class _ChatChoice:
    """How chat completions write a choice.

    Args:
        functions: whether it is of functions, as the API had them before tools.
    """

    def __init__(self, *, functions: bool) -> None:
        self._functions = functions

    def name(self, where: str, named: Any) -> str | None:
        kind = named.get("type") if isinstance(named, dict) else None
        kind = CUSTOM if kind == CUSTOM else FUNCTION
        tool = named.get(kind) if isinstance(named, dict) else None
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(name, str):
            raise invalid_field(f"{where}.{kind}.name", "must be the name of a tool")
        return name

    def allowed(self, choice: dict[str, Any]) -> tuple[str, Any]:
        return "tool_choice.allowed_tools", choice.get("allowed_tools", choice)

    def refusal(self, choice: Any) -> BatonError:  # noqa: ARG002 - all others are malformed
        if self._functions:
            why = "must be none, auto, or an object with the name of a function"
            return invalid_field("function_call", why)
        return invalid_field("tool_choice", f"must be {CHOICES}")


def not_a_function(field: str, kind: Any) -> BatonError:
    """Return the error of a tool, or of a call of one, whose type is another."""
    if isinstance(kind, str) and kind:
        return unsupported(field, why=f"type {kind[:64]!r}; use function or custom")
    return BatonError(Reason.INVALID_FIELD, f"{field}: must be a function", field=field)
