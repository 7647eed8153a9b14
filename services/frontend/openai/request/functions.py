"""The third pass over a chat completion's body: map `functions` and `function_call`, as OpenAI's
API had them before tools, to the fields of tools. An answer calls one of them at most."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from baton.errors import invalid_field
from services.frontend.openai.request.schema import ChatBody

_UNCHOSEN = (None, "none", "auto")
_NO_CHOICE = ""
"""In place of a `function_call` that is none: no form of `tool_choice`."""


class ToolFields(NamedTuple):
    """What a body says of tools, in either form."""

    definitions: Sequence[Any]
    """Tools; of the older form, functions."""
    choice: Any
    """As `tool_choice` has it."""
    parallel: bool
    """An answer may have more than one call."""
    functions: bool
    """They are of the older form."""


def tool_fields(body: ChatBody) -> ToolFields:
    """Return what a body says of functions or, if it has none, of tools.

    Raises:
        BatonError: INVALID_FIELD, `function_call` or `tool_choice` choose from what is not there,
            or there are tools and functions.
    """
    choice = body.function_call
    if body.functions and not body.tools:
        if body.tool_choice not in _UNCHOSEN:
            raise invalid_field(
                "tool_choice", "the request has functions, not tools: send function_call"
            )
        return ToolFields(body.functions, _as_tool_choice(choice), False, True)
    if not body.functions:
        if choice not in _UNCHOSEN:
            raise invalid_field("function_call", "the request has no functions")
    elif choice != "none":
        raise invalid_field(
            "functions", "cannot be combined with tools: move the functions to tools"
        )
    parallel = body.parallel_tool_calls is not False
    return ToolFields(body.tools or (), body.tool_choice, parallel, False)


def _as_tool_choice(choice: Any) -> Any:
    match choice:
        case None | "auto" | "none":
            return choice
        case {"name": str(name)}:
            return {"type": "function", "function": {"name": name}}
    return _NO_CHOICE
