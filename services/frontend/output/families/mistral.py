"""Mistral: a list of JSON objects after a special token, or a name and its arguments.

    [TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}]
    [TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}

The first is of tokenizers up to v7, the second of later ones, with or without `[ARGS]`.
"""

from services.frontend.output.families.family import CallForm, Family, short_id
from services.frontend.output.lexer import LexerState
from services.frontend.output.states import Expect, JsonArguments, JsonCall, Name, Space, Words

OPEN, ARGS, CALL_ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"
STATES: dict[str, LexerState] = {
    "text": Words("text", {OPEN: "open"}, tags=True),
    "open": Expect({"[": "list"}, "name"),
    "list": Expect({"{": "call"}),
    "call": JsonCall("next"),
    "next": Expect({",": "more", "]": "after"}, "after"),
    "more": Expect({"{": "call"}, "after", tags=True),
    "name": Name({CALL_ID: "id", ARGS: "arguments", "{": "arguments"}, keep="{"),
    "id": Words("nothing", {ARGS: "arguments"}),
    "arguments": JsonArguments("after"),
    "after": Space("text"),
}
LIST_FORM = CallForm(
    tag=OPEN,
    opening=("[", " ["),
    head='{"name": "{name}", "arguments": ',
    tail="}",
    between=", ",
    close="]",
)
NAME_FORM = CallForm(tag=OPEN, head=f"{{name}}{ARGS}", tail="", between=OPEN)
LIST_FAMILY = Family("mistral", STATES, LIST_FORM, make_id=short_id)
NAME_FAMILY = Family("mistral_args", STATES, NAME_FORM, make_id=short_id)
