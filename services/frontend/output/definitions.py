"""The tools of a request, and which of them its answer may or must call."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A function that the model may call."""

    name: str
    definition: Mapping[str, Any]
    """As chat templates take it: OpenAI's object, without `strict`."""
    parameters: Mapping[str, Any] | None = None
    """JSON Schema of its arguments; None: it has none."""
    strict: bool = False
    """Its calls keep to the schema, or the request is refused."""


class CallMode(Enum):
    """Whether an answer has calls."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """What a request says of tools."""

    tools: tuple[ToolDefinition, ...]
    """All that the model is told of; at least one."""
    calls: CallMode = CallMode.AUTO
    allowed: frozenset[str] | None = None
    """Names of those that may be called; None: all."""
    parallel: bool = True
    """There may be more than one call in an answer."""
    functions: bool = False
    """The client calls them functions, as OpenAI's API did before there were tools."""

    @property
    def field(self) -> str:
        """What the client calls `tools`."""
        return "functions" if self.functions else "tools"

    @property
    def choice_field(self) -> str:
        """What the client calls `calls` and `allowed`."""
        return "function_call" if self.functions else "tool_choice"

    def field_of(self, index: int) -> str:
        """Return what the client calls a tool's function."""
        return f"{self.field}[{index}]" + ("" if self.functions else ".function")

    @property
    def callable_tools(self) -> tuple[ToolDefinition, ...]:
        """Those that may be called, in their order."""
        if self.calls is CallMode.NONE:
            return ()
        return tuple(
            tool for tool in self.tools if self.allowed is None or tool.name in self.allowed
        )
