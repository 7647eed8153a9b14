"""Functions, as OpenAI's API had them before tools: `functions`, `function_call`, and the role
`function`. They are tools of which an answer calls one at most."""

from collections.abc import Sequence
from typing import Any

from baton.errors import invalid_field
from services.frontend.openai.request.schema import ChatBody, MessageBody
from services.frontend.openai.request.tools import arguments_of, read_calls, tool_of
from services.frontend.output.definitions import CallMode, ToolUse
from services.frontend.requests.tools import check_tools_count
from services.frontend.text.chat_template import ChatToolCall

FUNCTION = "function"
"""The role of a message that answers a call."""
_ID_DIGITS = 9
"""Of ids of calls in a conversation, which functions have none of: as many as Mistral's have."""


def calls_functions(body: ChatBody) -> bool:
    """Return whether calls of an answer are `function_call`."""
    return bool(body.functions) and not body.tools


def read_function_use(body: ChatBody) -> ToolUse | None:
    """Return what a body says of functions; None: it has none, or none beside tools.

    Raises:
        BatonError: INVALID_FIELD, one is no function, there are too many, `function_call` names
            what is not there, or there are tools besides that are called otherwise.
    """
    choice = body.function_call
    if not body.functions:
        if choice not in (None, "none", "auto"):
            raise invalid_field("function_call", "the request has no functions")
        return None
    if body.tools:
        if choice != "none":
            raise invalid_field(
                "functions", "cannot be combined with tools: move the functions to tools"
            )
        return None
    if body.tool_choice not in (None, "none", "auto"):
        raise invalid_field(
            "tool_choice", "the request has functions, not tools: send function_call"
        )
    check_tools_count(len(body.functions), "functions")
    tools = tuple(
        tool_of(f"functions[{index}]", function) for index, function in enumerate(body.functions)
    )
    calls, allowed = _choice(choice)
    return ToolUse(tools, calls, allowed, parallel=False, functions=True)


def calls_of(messages: Sequence[MessageBody], at: int) -> list[ChatToolCall]:
    """Return the calls of a message, or its `function_call`; their arguments are not checked.

    Raises:
        BatonError: as of `read_calls`; INVALID_FIELD, it has both.
    """
    message, where = messages[at], f"messages[{at}]"
    call = message.function_call
    if call is None:
        return read_calls(where, message.tool_calls)
    if message.tool_calls:
        raise invalid_field(f"{where}.function_call", "cannot be combined with tool_calls")
    return [ChatToolCall(_call_id(at), call.name, arguments_of(call))]


def answered_call(messages: Sequence[MessageBody], at: int) -> str:
    """Return the id of the call that a message of the role `function` answers: the latest one
    before it of its name; empty: there is none."""
    name = messages[at].name
    for before in range(at - 1, -1, -1):
        call = messages[before].function_call
        if call is not None and call.name == name:
            return _call_id(before)
    return ""


def _call_id(at: int) -> str:
    return f"{at:0{_ID_DIGITS}d}"


def _choice(choice: Any) -> tuple[CallMode, frozenset[str] | None]:
    """Return whether there is a call, and which functions may be called."""
    match choice:
        case None | "auto":
            return CallMode.AUTO, None
        case "none":
            return CallMode.NONE, None
        case {"name": str(name)}:
            return CallMode.REQUIRED, frozenset({name})
    raise invalid_field(
        "function_call", "must be none, auto, or an object with the name of a function"
    )
