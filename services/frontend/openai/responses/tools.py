"""The tools of a response: functions, also in namespaces. Tools of other types run nowhere here;
they are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from baton.errors import invalid_field
from services.frontend.openai.request.tools import named_tool
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.requests.refusals import check_count, unsupported
from services.frontend.requests.validation.tools import MAX_TOOLS

_MODES = {mode.value: mode for mode in CallMode}
_FUNCTION, _NAMESPACE = "function", "namespace"
_CHOICES = f"{', '.join(_MODES)}, or an object of type function or allowed_tools"


def qualified(namespace: str | None, name: str) -> str:
    """Return the name of a function for the model."""
    return f"{namespace}.{name}" if namespace else name


@dataclass(frozen=True, slots=True)
class ResponseTools:
    """The tools of a request."""

    use: ToolUse | None = None
    """None: there are none that can run here."""
    left_out: tuple[str, ...] = ()
    """Types of the tools that cannot, each once."""
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Namespace and name of functions in namespaces, by their names for the model."""


def read_tools(tools: Sequence[Any], choice: Any, *, parallel: bool) -> ResponseTools:
    """Return the tools that a body names; their names and schemas are not checked.

    Args:
        tools: of any type.
        choice: the body's `tool_choice`.
        parallel: whether a response may have more than one call.

    Raises:
        BatonError: a tool is malformed, there are too many, or the choice is malformed, or of a
            tool that is not there or left out.
    """
    check_count("tools", len(tools), MAX_TOOLS)
    found = _Found()
    for index, tool in enumerate(tools):
        found.add(tool, f"tools[{index}]")
    check_count("tools", len(found.definitions), MAX_TOOLS)
    calls, allowed, one = _choice(choice)
    left_out = tuple(dict.fromkeys(found.left_out))
    if not found.definitions:
        if calls is CallMode.REQUIRED:
            left = f"; {', '.join(left_out)} cannot run here" if left_out else ""
            raise invalid_field("tool_choice", f"the request has no functions{left}")
        return ResponseTools(None, left_out)
    use = ToolUse(
        tuple(found.definitions), calls, allowed, parallel and not one, places=tuple(found.places)
    )
    return ResponseTools(use, left_out, found.names)


class _Found:
    def __init__(self) -> None:
        self.definitions: list[ToolDefinition] = []
        self.places: list[str] = []
        self.names: dict[str, tuple[str, str]] = {}
        self.left_out: list[str] = []

    def add(self, tool: Any, where: str, namespace: str = "") -> None:
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise invalid_field(where, "must be an object with a type")
        kind = tool["type"]
        if kind == _FUNCTION:
            self._function(tool, where, namespace)
        elif kind == _NAMESPACE and not namespace:
            name, inner = tool.get("name"), tool.get("tools")
            if not isinstance(name, str) or not name:
                raise invalid_field(f"{where}.name", "must be the namespace's name")
            if not isinstance(inner, list):
                raise invalid_field(f"{where}.tools", "must be a list of functions")
            for index, one in enumerate(inner):
                self.add(one, f"{where}.tools[{index}]", name)
        else:
            self.left_out.append(kind[:64])

    def _function(self, tool: dict[str, Any], where: str, namespace: str) -> None:
        function = {key: value for key, value in tool.items() if key != "type"}
        if namespace and isinstance(function.get("name"), str):
            own = function["name"]
            function["name"] = qualified(namespace, own)
            self.names[function["name"]] = namespace, own
        self.definitions.append(named_tool(where, function))
        self.places.append(where)


def _choice(choice: Any) -> tuple[CallMode, frozenset[str] | None, bool]:
    """Return whether there are calls, which tools may be called, and whether it is one call."""
    if choice is None:
        return CallMode.AUTO, None, False
    if isinstance(choice, str) and choice in _MODES:
        return _MODES[choice], None, False
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind == _FUNCTION:
        return CallMode.REQUIRED, frozenset({_name("tool_choice", choice)}), True
    if kind == "allowed_tools":
        return _allowed(choice)
    if isinstance(kind, str):
        raise unsupported("tool_choice.type", why=f"{kind[:64]!r} cannot run here; use a function")
    raise invalid_field("tool_choice", f"must be {_CHOICES}")


def _allowed(choice: dict[str, Any]) -> tuple[CallMode, frozenset[str], bool]:
    if choice.get("mode") not in ("auto", "required"):
        raise invalid_field("tool_choice.mode", "must be auto or required")
    tools = choice.get("tools")
    if not isinstance(tools, list) or not tools:
        raise invalid_field("tool_choice.tools", "must be a list of at least one tool")
    functions = [
        _name(f"tool_choice.tools[{at}]", one)
        for at, one in enumerate(tools)
        if not isinstance(one, dict) or one.get("type") == _FUNCTION
    ]
    if not functions:
        raise unsupported("tool_choice.tools", why="none of them can run here; allow a function")
    return _MODES[choice["mode"]], frozenset(functions), False


def _name(where: str, named: Any) -> str:
    name = named.get("name") if isinstance(named, dict) else None
    if not isinstance(name, str):
        raise invalid_field(f"{where}.name", "must be the name of a function")
    namespace = named.get("namespace")
    return qualified(namespace if isinstance(namespace, str) else None, name)
