"""Hermes, Qwen 2.5, Qwen 3: a JSON object between tags, for each call.

<tool_call>
{"name": "get_weather", "arguments": {"city": "Paris"}}
</tool_call>
"""

from services.frontend.output.families.family import CallForm, Family
from services.frontend.output.lexer import LexerState
from services.frontend.output.states import Expect, JsonCall, Space, Words

OPEN, CLOSE = "<tool_call>", "</tool_call>"
STATES: dict[str, LexerState] = {
    "text": Words("text", {OPEN: "open"}, tags=True),
    "open": Expect({"{": "call"}),
    "call": JsonCall("close"),
    "close": Expect({CLOSE: "after"}, "after"),
    "after": Space("text"),
}
FORM = CallForm(
    tag=OPEN,
    head='\n{"name": "{name}", "arguments": ',
    tail=f"}}\n{CLOSE}",
    between=f"\n{OPEN}",
)
FAMILY = Family("hermes", STATES, FORM)
