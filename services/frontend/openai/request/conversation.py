"""The messages of a chat completion's body."""

from collections.abc import Sequence
from typing import Any

from baton.errors import BatonError, Reason, invalid_field
from services.frontend.openai.request.functions import FUNCTION, answered_call, calls_of
from services.frontend.openai.request.schema import MessageBody
from services.frontend.requests.request import ChatPrompt
from services.frontend.requests.validate import check_messages, unsupported
from services.frontend.text.chat_template import PLAIN, ChatMessage, TemplateOptions

_MAY_BE_SILENT = frozenset({"assistant", "tool", FUNCTION})
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
"""OpenAI's Responses have other names for text, which its agents keep in their histories."""


def conversation(
    messages: Sequence[MessageBody],
    max_messages: int,
    options: TemplateOptions = PLAIN,
) -> ChatPrompt:
    """Return the prompt that a body's messages are, with what it asks of the template.

    Raises:
        BatonError: there are more than `max_messages`; one of a user or the system has no content,
            one has content that is no text, or what is no call of a tool.
    """
    check_messages(len(messages), max_messages)
    return ChatPrompt([_message(messages, index) for index in range(len(messages))], options)


def _message(messages: Sequence[MessageBody], index: int) -> ChatMessage:
    message, where = messages[index], f"messages[{index}]"
    if message.audio:
        raise unsupported(f"{where}.audio")
    content, thought = _content(message, where)
    answers = message.role == FUNCTION
    return ChatMessage(
        "tool" if answers else message.role,
        content,
        message.name or "",
        calls_of(messages, index),
        answered_call(messages, index) if answers else message.tool_call_id or "",
        message.reasoning_content or message.reasoning or thought,
    )


def _content(message: MessageBody, where: str) -> tuple[str, str]:
    """Return what a message says, and what its parts say that was thought.

    What the assistant said, and what tools returned, is history: it may be nothing, or a refusal.
    """
    content = message.content
    if content is None:
        if message.role not in _MAY_BE_SILENT:
            raise invalid_field(f"{where}.content", "must have text")
        return message.refusal or "", ""
    if isinstance(content, str):
        return content, ""
    texts, thoughts = [], []
    for at, part in enumerate(content):
        if isinstance(part, str):
            texts.append(part)
        elif part.type in _TEXT_PARTS:
            texts.append(part.text or "")
        elif message.role == "assistant" and part.type == "refusal":
            texts.append(part.refusal or "")
        elif message.role == "assistant" and part.type == "thinking":
            thoughts.append(_thought(part.thinking))
        else:
            name = f"{where}.content[{at}].type"
            raise BatonError(
                Reason.UNSUPPORTED_PARAMETER,
                f"{name}: {part.type[:64]!r} is not supported; only text is",
                field=name,
            )
    return "".join(texts), "".join(thoughts)


def _thought(thinking: Any) -> str:
    """Return the text of a part of the type thinking; Mistral's is of parts itself."""
    if isinstance(thinking, list):
        return "".join(
            one["text"]
            for one in thinking
            if isinstance(one, dict) and isinstance(one.get("text"), str)
        )
    return thinking if isinstance(thinking, str) else ""
