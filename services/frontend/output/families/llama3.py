"""Llama 3.1 to 3.3: the output is a JSON object, with or without a special token before it.

    {"name": "get_weather", "parameters": {"city": "Paris"}}

Several calls follow each other, separated by semicolons.
"""

from services.frontend.output.families.family import CallForm, Family
from services.frontend.output.lexer import LexerState
from services.frontend.output.states import Expect, JsonCall, Space, Words

TAG = "<|python_tag|>"
STATES: dict[str, LexerState] = {
    "start": Expect({TAG: "open", "{": "call"}, "text", tags=True),
    "text": Words("text", {TAG: "open"}, tags=True),
    "open": Expect({"{": "call"}),
    "call": JsonCall("next", ("parameters", "arguments")),
    "next": Expect({";": "again", TAG: "open"}, "again", tags=False),
    "again": Expect({"{": "call", TAG: "open"}, "after", tags=True),
    "after": Space("text"),
}
FORM = CallForm(head='{"name": "{name}", "parameters": ', tail="}", between="; ", optional_tag=TAG)
FAMILY = Family("llama3", STATES, FORM, start="start")
