"""The messages of a chat completion's body."""

from collections.abc import Sequence

from baton.errors import BatonError, Reason, invalid_field
from services.frontend.openai.request.functions import FUNCTION, answered_call, calls_of
from services.frontend.openai.request.schema import MessageBody
from services.frontend.requests.request import ChatPrompt
from services.frontend.requests.validate import check_messages, unsupported
from services.frontend.text.chat_template import PLAIN, Message, TemplateOptions


def conversation(
    messages: Sequence[MessageBody],
    max_messages: int,
    options: TemplateOptions = PLAIN,
) -> ChatPrompt:
    """Return the prompt that a body's messages are, with what it asks of the template.

    Raises:
        BatonError: there are more than `max_messages`; one has no content, or content that is no
            text, or what is no call of a tool.
    """
    check_messages(len(messages), max_messages)
    return ChatPrompt([_message(messages, index) for index in range(len(messages))], options)


def _message(messages: Sequence[MessageBody], index: int) -> Message:
    message, where = messages[index], f"messages[{index}]"
    if message.audio:
        raise unsupported(f"{where}.audio")
    content = message.content
    if content is None:
        if not message.tool_calls and message.function_call is None:
            raise invalid_field(f"{where}.content", "text is needed")
        content = ""
    if not isinstance(content, str):
        texts = []
        for at, part in enumerate(content):
            if part.type != "text":
                name = f"{where}.content[{at}].type"
                raise BatonError(
                    Reason.UNSUPPORTED_PARAMETER,
                    f"{name}: {part.type[:64]!r} is not supported; content is text",
                    field=name,
                )
            texts.append(part.text or "")
        content = "".join(texts)
    answers = message.role == FUNCTION
    return Message(
        "tool" if answers else message.role,
        content,
        message.name or "",
        calls_of(messages, index),
        answered_call(messages, index) if answers else message.tool_call_id or "",
        message.reasoning_content or message.reasoning or "",
    )
