"""The function as which a model is shown a custom tool."""

import json
from typing import Any

from services.frontend.output.definitions import TextInput, ToolDefinition

INPUT = "input"
"""The one argument of the function."""
_PARAMETERS = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}
_FOLLOWS = "The input must match this {syntax}:\n{definition}"
_SYNTAX = {"lark": "Lark grammar", "regex": "regular expression"}


def as_arguments(given: str) -> str:
    """Return the input of a call as the arguments that the model wrote."""
    return json.dumps({INPUT: given}, ensure_ascii=False)


def text_tool(name: str, description: str, given: TextInput) -> ToolDefinition:
    """Return a custom tool as a function whose one argument is a text.

    The grammar of its input is part of the description: without it, a model would be held to a form
    that it does not know.

    Args:
        name: of the tool.
        description: of it; empty: none.
        given: its input.
    """
    told = [description] if description else []
    if given.form is not None:
        syntax = _SYNTAX[given.form.kind]
        told.append(_FOLLOWS.format(syntax=syntax, definition=given.form.text))
    function: dict[str, Any] = {"name": name, "parameters": _PARAMETERS}
    if told:
        function = {"name": name, "description": "\n\n".join(told), "parameters": _PARAMETERS}
    return ToolDefinition(name, {"type": "function", "function": function}, _PARAMETERS, text=given)
