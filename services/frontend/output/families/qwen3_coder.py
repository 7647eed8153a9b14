"""Qwen 3 Coder: tags for the function and each parameter; values are text, not JSON.

    <tool_call>
    <function=get_weather>
    <parameter=city>
    Paris
    </parameter>
    </function>
    </tool_call>

The outer tag is sometimes left out.
"""

from services.frontend.output.families.family import CallForm, Family
from services.frontend.output.lexer import LexerState
from services.frontend.output.states import Expect, Name, Space, Words
from services.frontend.output.xml_arguments import XmlArguments

OPEN, CLOSE = "<tool_call>", "</tool_call>"
FUNCTION, END = "<function=", "</function>"
PARAMETER, VALUE_END = "<parameter=", "</parameter>"
STATES: dict[str, LexerState] = {
    "text": Words("text", {OPEN: "open", FUNCTION: "name"}, tags=True),
    "open": Expect({FUNCTION: "name"}),
    "name": Name({">": "arguments"}),
    "arguments": XmlArguments(PARAMETER, VALUE_END, END, "close"),
    "close": Expect({CLOSE: "after"}, "after"),
    "after": Space("text"),
}
FORM = CallForm(
    tag=OPEN,
    head=f"\n{FUNCTION}{{name}}>\n",
    tail=f"{END}\n{CLOSE}",
    between=f"\n{OPEN}",
    xml=True,
)
FAMILY = Family("qwen3_coder", STATES, FORM)
