"""The tools of a request, and which of them its output may or must call."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from baton.request.grammar import Grammar


@dataclass(frozen=True, slots=True)
class TextInput:
    """The input of a custom tool, which is a text."""

    form: Grammar | None = None
    """What it must match, a Lark grammar or a regular expression; None: any text."""
    field: str = ""
    """The client's name for the grammar."""


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A function that the model may call."""

    name: str
    definition: Mapping[str, Any]
    """As passed to chat templates: OpenAI's object, without `strict`."""
    parameters: Mapping[str, Any] | None = None
    """JSON Schema of its arguments; None: there is none."""
    strict: bool = False
    """Whether its calls must match the schema; if that cannot be enforced, the request fails."""
    text: TextInput | None = None
    """The input, if it is a custom tool: the function's one argument; None: it is a function."""


class CallMode(Enum):
    """Whether an output has calls."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The tools of a request and how they may be used."""

    tools: tuple[ToolDefinition, ...]
    """All tools shown to the model; at least one."""
    calls: CallMode = CallMode.AUTO
    allowed: frozenset[str] | None = None
    """Names of the tools that may be called; None: all."""
    parallel: bool = True
    """Whether an output may have more than one call."""
    functions: bool = False
    """Whether the client uses OpenAI's older API, which calls them functions."""
    places: tuple[str, ...] = ()
    """The client's names of the tools' functions; empty: those of chat completions."""

    @property
    def field(self) -> str:
        """The client's name for `tools`."""
        return "functions" if self.functions else "tools"

    @property
    def choice_field(self) -> str:
        """The client's name for `calls` and `allowed`."""
        return "function_call" if self.functions else "tool_choice"

    def field_of(self, index: int) -> str:
        """Return the client's name for a tool's function."""
        if self.places:
            return self.places[index]
        return f"{self.field}[{index}]" + ("" if self.functions else ".function")

    @property
    def custom(self) -> frozenset[str]:
        """The names of the custom tools."""
        return frozenset(tool.name for tool in self.tools if tool.text is not None)

    @property
    def callable_tools(self) -> tuple[ToolDefinition, ...]:
        """The tools that may be called, in order."""
        if self.calls is CallMode.NONE:
            return ()
        return tuple(
            tool for tool in self.tools if self.allowed is None or tool.name in self.allowed
        )
