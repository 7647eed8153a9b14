"""The tools of a response: functions and custom tools, also in namespaces. Tools of other types run
nowhere here; they are left out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from baton.errors import BatonError, invalid_field
from services.frontend.openai.request.tools import named_tool
from services.frontend.openai.tools.choice import CHOICES, CUSTOM, FUNCTION, read_choice
from services.frontend.openai.tools.custom import custom_tool
from services.frontend.output.definitions import CallMode, ToolDefinition, ToolUse
from services.frontend.requests.refusals import check_count, unsupported
from services.frontend.requests.validation.tools import MAX_TOOLS

_NAMESPACE = "namespace"
_NOT_TOLD = frozenset({"type", "allowed_callers", "async", "defer_loading"})
"""Fields of a tool that say nothing to the model."""


def qualified(namespace: str | None, name: str) -> str:
    """Return the name of a tool for the model."""
    return f"{namespace}.{name}" if namespace else name


@dataclass(frozen=True, slots=True)
class ResponseTools:
    """The tools of a request."""

    use: ToolUse | None = None
    """None: there are none that can run here."""
    left_out: tuple[str, ...] = ()
    """Types of the tools that cannot, each once."""
    names: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Namespace and name of tools in namespaces, by their names for the model."""

    @property
    def custom(self) -> frozenset[str]:
        """Names of custom tools for the model."""
        return frozenset() if self.use is None else self.use.custom


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
    calls, allowed, one = read_choice(choice, _ResponseChoice())
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
        if kind in (FUNCTION, CUSTOM):
            self._tool(tool, where, namespace)
        elif kind == _NAMESPACE and not namespace:
            name, inner = tool.get("name"), tool.get("tools")
            if not isinstance(name, str) or not name:
                raise invalid_field(f"{where}.name", "must be the namespace's name")
            if not isinstance(inner, list):
                raise invalid_field(f"{where}.tools", "must be a list of tools")
            for index, one in enumerate(inner):
                self.add(one, f"{where}.tools[{index}]", name)
        else:
            self.left_out.append(kind[:64])

    def _tool(self, tool: dict[str, Any], where: str, namespace: str) -> None:
        told = {key: value for key, value in tool.items() if key not in _NOT_TOLD}
        if namespace and isinstance(told.get("name"), str):
            own = told["name"]
            told["name"] = qualified(namespace, own)
            self.names[told["name"]] = namespace, own
        if tool["type"] == CUSTOM:
            self.definitions.append(custom_tool(where, told, nested=False))
        else:
            self.definitions.append(named_tool(where, told))
        self.places.append(where)


class _ResponseChoice:
    """How responses write a choice."""

    def name(self, where: str, named: Any) -> str | None:
        kind = named.get("type") if isinstance(named, dict) else FUNCTION
        if kind not in (FUNCTION, CUSTOM):
            return None
        name = named.get("name") if isinstance(named, dict) else None
        if not isinstance(name, str):
            raise invalid_field(f"{where}.name", "must be the name of a tool")
        namespace = named.get("namespace")
        return qualified(namespace if isinstance(namespace, str) else None, name)

    def allowed(self, choice: dict[str, Any]) -> tuple[str, Any]:
        return "tool_choice", choice

    def refusal(self, choice: Any) -> BatonError:
        kind = choice.get("type") if isinstance(choice, dict) else None
        if not isinstance(kind, str):
            return invalid_field("tool_choice", f"must be {CHOICES}")
        why = f"{kind[:64]!r} cannot run here; use a function or a custom tool"
        return unsupported("tool_choice.type", why=why)
