"""Which tools may be called: `tool_choice`, in the shapes of chat completions and of responses."""

from typing import Any, NamedTuple, Protocol

from baton.errors import BatonError, invalid_field
from services.frontend.output.definitions import CallMode

FUNCTION, CUSTOM = "function", "custom"
"""The types of tools that a model may call here."""
_MODES = {mode.value: mode for mode in CallMode}
_FIELD = "tool_choice"
CHOICES = f"{', '.join(_MODES)}, or an object of type {FUNCTION}, {CUSTOM} or allowed_tools"


class CallChoice(NamedTuple):
    """What a choice allows."""

    calls: CallMode
    allowed: frozenset[str] | None = None
    """Names of tools that may be called; None: all."""
    one: bool = False
    """Whether there is at most one call."""


class ChoiceShape(Protocol):
    """How an API writes a choice."""

    def name(self, where: str, named: Any) -> str | None:
        """Return a tool's name for the model; None: it is of a type that is left out.

        Raises:
            BatonError: INVALID_FIELD: it has none.
        """
        ...

    def allowed(self, choice: dict[str, Any]) -> tuple[str, Any]:
        """Return the object with the mode and the allowed tools, and its field."""
        ...

    def refusal(self, choice: Any) -> BatonError:
        """Return the error of a choice of another type, or of none."""
        ...


def read_choice(choice: Any, shape: ChoiceShape) -> CallChoice:
    """Return what a body's `tool_choice` allows; null: any call, or none.

    Raises:
        BatonError: it is malformed, or of a type that is not supported.
    """
    if choice is None:
        return CallChoice(CallMode.AUTO)
    if isinstance(choice, str) and choice in _MODES:
        return CallChoice(_MODES[choice])
    kind = choice.get("type") if isinstance(choice, dict) else None
    if kind in (FUNCTION, CUSTOM) and (name := shape.name(_FIELD, choice)) is not None:
        return CallChoice(CallMode.REQUIRED, frozenset({name}), True)
    if kind == "allowed_tools":
        return _allowed(*shape.allowed(choice), shape)
    raise shape.refusal(choice)


def _allowed(field: str, allowed: Any, shape: ChoiceShape) -> CallChoice:
    if not isinstance(allowed, dict) or allowed.get("mode") not in ("auto", "required"):
        raise invalid_field(f"{field}.mode", "must be auto or required")
    tools = allowed.get("tools")
    if not isinstance(tools, list) or not tools:
        raise invalid_field(f"{field}.tools", "must be a list of at least one tool")
    named = (shape.name(f"{field}.tools[{at}]", one) for at, one in enumerate(tools))
    names = frozenset(name for name in named if name is not None)
    if not names:
        raise shape.refusal(tools[0])
    return CallChoice(_MODES[allowed["mode"]], names)
