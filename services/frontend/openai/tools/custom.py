"""Custom tools of a body: their input is a text, which may have to match a grammar."""

from typing import Any

from baton.errors import invalid_field
from baton.request.grammar import Grammar
from services.frontend.output.custom.function import text_tool
from services.frontend.output.custom.json_regex import unanchored
from services.frontend.output.definitions import TextInput, ToolDefinition
from services.frontend.requests.refusals import unsupported

_SYNTAXES = ("lark", "regex")


def custom_tool(where: str, tool: Any, *, nested: bool) -> ToolDefinition:
    """Return the custom tool that an object is; its name is not checked.

    Args:
        where: its field.
        tool: with `name`, `description` and `format`.
        nested: whether a grammar is an object within `format`, as in chat completions.

    Raises:
        BatonError: it is malformed, or its format is not supported.
    """
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        raise invalid_field(where, "must be an object with a name")
    description = tool.get("description")
    if description is not None and not isinstance(description, str):
        raise invalid_field(f"{where}.description", "must be a text")
    given = _input(f"{where}.format", tool.get("format"), nested=nested)
    return text_tool(tool["name"], description or "", given)


def _input(where: str, asked: Any, *, nested: bool) -> TextInput:
    if asked is None:
        return TextInput()
    kind = asked.get("type") if isinstance(asked, dict) else None
    if kind == "text":
        return TextInput()
    if kind != "grammar":
        raise unsupported(f"{where}.type", why="use text or grammar")
    if nested:
        where, asked = f"{where}.grammar", asked.get("grammar")
    syntax = asked.get("syntax") if isinstance(asked, dict) else None
    if syntax not in _SYNTAXES:
        raise unsupported(f"{where}.syntax", why="use lark or regex")
    field, definition = f"{where}.definition", asked.get("definition")
    if not isinstance(definition, str):
        raise invalid_field(field, "must be the grammar as a text")
    form = Grammar.of(syntax, unanchored(definition) if syntax == "regex" else definition)
    try:
        form.check()
    except ValueError as error:
        raise invalid_field(field, str(error)) from None
    return TextInput(form, field)
