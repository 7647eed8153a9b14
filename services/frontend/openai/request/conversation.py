"""The sixth pass over a chat completion's body: its messages, with the calls in them.

Messages may have functions, as OpenAI's API had them before tools: a `function_call`, and the role
`function`. They become calls of tools.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from baton.errors import BatonError, Reason, invalid_field
from services.frontend.openai.request.schema import ContentPart, FunctionBody, MessageBody
from services.frontend.openai.request.tools import not_a_function
from services.frontend.openai.tools.choice import CUSTOM
from services.frontend.output.custom.function import as_arguments
from services.frontend.pictures.data_url import PictureUrl
from services.frontend.requests.refusals import check_count, unsupported
from services.frontend.requests.request import ChatPrompt
from services.frontend.text.chat_template import PLAIN, ChatMessage, ChatToolCall, TemplateOptions

_FUNCTION = "function"
"""The role of a message that answers a call, and the type of a call."""
_MAY_BE_SILENT = frozenset({"assistant", "tool", _FUNCTION})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
"""OpenAI's Responses have other names for text, which its agents keep in their histories."""
_ID_DIGITS = 9
"""Of ids of calls in a conversation, which functions have none of: as many as Mistral's have."""


class ToolCallBody(msgspec.Struct):
    """A call of a tool, in a conversation."""

    id: str | None = None
    type: str | None = None
    function: FunctionBody | None = None
    custom: "CustomBody | None" = None


class CustomBody(msgspec.Struct):
    """A call of a custom tool."""

    name: str
    input: str = ""


def conversation(
    messages: Sequence[MessageBody],
    max_messages: int,
    options: TemplateOptions = PLAIN,
) -> ChatPrompt:
    """Return the prompt that a body's messages are, with what it asks of the template.

    Raises:
        BatonError: there are more than `max_messages`; one of a user or the system has no content,
            one has content that is neither text nor a picture, or what is no call of a tool.
    """
    check_count("messages", len(messages), max_messages)
    return ChatPrompt([_message(messages, index) for index in range(len(messages))], options)


def _message(messages: Sequence[MessageBody], index: int) -> ChatMessage:
    message, where = messages[index], f"messages[{index}]"
    if message.audio:
        raise unsupported(f"{where}.audio")
    content, thought, parts = _content(message, where)
    answers = message.role == _FUNCTION
    return ChatMessage(
        "tool" if answers else message.role,
        content,
        message.name or "",
        _calls(message, index, where),
        _answered_call(messages, index) if answers else message.tool_call_id or "",
        message.reasoning_content or message.reasoning or thought,
        parts,
    )


def _content(message: MessageBody, where: str) -> tuple[str, str, Sequence[str | PictureUrl]]:
    """Return what a message says, what its parts say that was thought, and its parts, if there are
    pictures among them.

    What the assistant said, and what tools returned, is history: it may be nothing, or a refusal.
    """
    content = message.content
    if content is None:
        if message.role not in _MAY_BE_SILENT:
            raise invalid_field(f"{where}.content", "must have text")
        return message.refusal or "", "", ()
    if isinstance(content, str):
        return content, "", ()
    texts, thoughts = [], []
    parts: list[str | PictureUrl] = []
    for at, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
            parts.append(part)
        elif part.type in _TEXT_PARTS:
            texts.append(part.text or "")
            parts.append(part.text or "")
        elif part.type == "image_url":
            parts.append(_picture(part, f"{where}.content[{at}].image_url"))
        elif message.role == "assistant" and part.type == "refusal":
            texts.append(part.refusal or "")
        elif message.role == "assistant" and part.type == "thinking":
            thoughts.append(_thought(part.thinking))
        else:
            name = f"{where}.content[{at}].type"
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                f"{name}: {part.type[:64]!r} is not supported; only text and image_url are",
                field=name,
            )
    has_pictures = len(parts) > len(texts)
    return "".join(texts), "".join(thoughts), parts if has_pictures else ()


def _picture(part: ContentPart, field: str) -> PictureUrl:
    given = part.image_url
    if given is None:
        raise invalid_field(field, "is required")
    if isinstance(given, str):
        return PictureUrl(given, field)
    if given.detail not in (None, "auto"):
        raise unsupported(f"{field}.detail", why="how a model sees a picture is fixed; omit it")
    return PictureUrl(given.url, field)


def _thought(thinking: Any) -> str:
    """Return the text of a part of the type thinking; Mistral's is of parts itself."""
    if isinstance(thinking, list):
        return "".join(
            one["text"]
            for one in thinking
            if isinstance(one, dict) and isinstance(one.get("text"), str)
        )
    return thinking if isinstance(thinking, str) else ""


def _calls(message: MessageBody, index: int, where: str) -> list[ChatToolCall]:
    """Return the calls of a message, or its `function_call`; their arguments are not checked."""
    function = message.function_call
    if function is not None:
        if message.tool_calls:
            raise invalid_field(f"{where}.function_call", "cannot be combined with tool_calls")
        return [ChatToolCall(_call_id(index), function.name, _arguments(function))]
    if not message.tool_calls:
        return []
    try:
        read = msgspec.convert(message.tool_calls, list[ToolCallBody])
    except msgspec.ValidationError as error:
        raise invalid_field(f"{where}.tool_calls", str(error)) from None
    made = []
    for at, call in enumerate(read):
        if call.type == CUSTOM and call.custom is not None:
            arguments = as_arguments(call.custom.input)
            made.append(ChatToolCall(call.id or "", call.custom.name, arguments))
            continue
        if call.function is None or call.type not in (None, _FUNCTION):
            raise not_a_function(f"{where}.tool_calls[{at}].type", call.type)
        made.append(ChatToolCall(call.id or "", call.function.name, _arguments(call.function)))
    return made


def _arguments(function: FunctionBody) -> str:
    """Return the arguments of a call as text, as they were given: they need not be JSON."""
    given = function.arguments
    if isinstance(given, str):
        return given
    return "" if given is None else json.dumps(given, ensure_ascii=False)


def _answered_call(messages: Sequence[MessageBody], at: int) -> str:
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
