"""The validator's part for prompts: texts, token ids, and conversations with their tool calls."""

import re
from collections.abc import Sequence

from baton import sampling
from baton.errors import BatonError, Reason, invalid_field
from baton.settings import FrontendLimits
from services.frontend.models.model import ServedModel
from services.frontend.pictures.data_url import PictureUrl, check_urls
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.refusals import check_count
from services.frontend.requests.request import (
    ChatPrompt,
    Prompt,
    PromptOptions,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.text.chat_template import ChatMessage

ROLES = ("system", "developer", "user", "assistant", "tool")
_SPEAKER = re.compile(r"[^\s<|\\/>]{0,64}")
"""Pattern of a speaker's name, as in OpenAI's reference."""
MAX_CALLED = 256
"""The most characters of the name in a call, which a model may have made up."""


def check_prompt(prompt: Prompt, limits: FrontendLimits) -> None:
    """Check a prompt alone.

    Raises:
        BatonError: the first invalid field.
    """
    match prompt:
        case TextPrompt(text, suffix):
            if not (text or suffix):
                raise invalid_field("prompt", "the prompt is empty")
        case TokenPrompt(ids):
            if not ids:
                raise invalid_field("prompt", "the prompt is empty")
        case ChatPrompt(messages):
            if not messages:
                raise invalid_field("messages", "at least one message is required")
            check_count("messages", len(messages), limits.max_messages)
            for index, message in enumerate(messages):
                if message.role not in ROLES:
                    raise invalid_field(
                        f"messages[{index}].role",
                        f"{message.role[:64]!r} is not a role: use {', '.join(ROLES)}",
                    )
                if not _SPEAKER.fullmatch(message.name):
                    raise invalid_field(
                        f"messages[{index}].name",
                        "must have at most 64 characters, none of them a space, <, |, \\, / or >",
                    )
                if message.parts and message.role != "user":
                    raise invalid_field(
                        message.pictures[0].field,
                        "only messages of the role user can have pictures",
                    )
            check_urls([one for message in messages for one in message.pictures], limits)
            _check_calls(messages)


def check_pictures(
    pictures: Sequence[PictureUrl], model: ServedModel, options: PromptOptions
) -> None:
    """Check that a model takes the pictures of a conversation.

    Raises:
        BatonError: UNSUPPORTED_PARAMETER: it does not; INVALID_FIELD: the prompt would be
            truncated.
    """
    if model.pictures is None:
        field = pictures[0].field
        raise BatonError(
            Reason.UNSUPPORTED_PARAMETER,
            f"{field}: model {model.name!r} takes no pictures; send text alone",
            field=field,
        )
    if options.truncate_tokens is not None:
        raise invalid_field("truncate_prompt_tokens", "cannot be combined with pictures; omit it")


def check_tokens(field: str, ids: Sequence[int], model: ServedModel) -> None:
    """Check token ids that are to be detokenized; `field` is the client's name for them.

    Raises:
        BatonError: INVALID_FIELD: an id is outside the model's vocabulary.
    """
    try:
        sampling.check_token_ids(field, ids, model.vocab_tokens)
    except sampling.InvalidParameterError as error:
        raise invalid_field(error.field, str(error)) from None


def too_long(prompt: Prompt, context: RequestContextLimit, tokens: str) -> BatonError:
    """Return the error of a prompt that leaves no space for an output.

    Args:
        prompt: the prompt as sent.
        context: the limit that it exceeds.
        tokens: the number of its tokens, formatted for messages.
    """
    field = prompt.field
    return context.exceeded(
        f"However, your {field} resulted in {tokens} tokens, and at least one is for the output. "
        f"Reduce the length of the {field}",
        field,
    )


def _check_calls(messages: Sequence[ChatMessage]) -> None:
    """Check the tool calls in a conversation.

    They are history and stay as the model wrote them: `max_tokens` may have cut off arguments, and
    names need not be those of a tool.

    Raises:
        BatonError: the first invalid field.
    """
    for at, message in enumerate(messages):
        if message.tool_calls and message.role != "assistant":
            raise invalid_field(
                f"messages[{at}].tool_calls",
                "only messages of the role assistant can have tool calls",
            )
        for index, call in enumerate(message.tool_calls):
            if len(call.name) > MAX_CALLED:
                raise invalid_field(
                    f"messages[{at}].tool_calls[{index}].function.name",
                    f"must have at most {MAX_CALLED} characters",
                )
