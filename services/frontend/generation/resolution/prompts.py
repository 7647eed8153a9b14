"""Tokenize prompts, in turns, and on threads if they are long."""

from functools import partial

from baton.settings import FrontendLimits
from services.frontend.generation.assigned.placements import TOKEN_BYTES
from services.frontend.generation.turns import LoopTurns
from services.frontend.models.model import ServedModel
from services.frontend.pictures.data_url import read_pictures
from services.frontend.pictures.placing import place_pictures
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.request import (
    WHOLE_PROMPT,
    ChatPrompt,
    EncodedPrompt,
    Prompt,
    PromptOptions,
    TextPrompt,
    TokenPrompt,
)
from services.frontend.requests.validation.prompts import check_pictures, too_long
from services.frontend.text.tokenizer import (
    LONG_CHARACTERS,
    TokenizerThreads,
    TooManyTokensError,
)

_LONGEST_TRUNCATED = 8
"""In contexts. A longer prompt cannot be truncated: tokenizing it costs too much."""
_TEMPLATE_CHARACTERS = 32
"""Approximate characters that a chat template adds per message, ..."""
_TOOL_CHARACTERS = 512
"""... and per tool."""


class PromptEncoder:
    """Tokenizes prompts. Runs on the event loop.

    Args:
        threads: where long prompts are tokenized.
        turns: limits what is tokenized in one turn of the loop.
        special_tokens: the value of the setting `text.special_tokens`.
        limits: of pictures.
    """

    def __init__(
        self,
        threads: TokenizerThreads,
        turns: LoopTurns,
        special_tokens: str,
        limits: FrontendLimits,
    ) -> None:
        self._threads = threads
        self._turns = turns
        self._special_tokens = special_tokens
        self._limits = limits

    async def encode(
        self,
        model: ServedModel,
        prompt: Prompt,
        context: RequestContextLimit,
        options: PromptOptions = WHOLE_PROMPT,
        max_tokens: int | None = None,
    ) -> EncodedPrompt:
        """Return the token ids of a prompt, and its pictures.

        Args:
            model: the model.
            prompt: the prompt as the client sent it.
            context: the most tokens.
            options: how to tokenize.
            max_tokens: the most tokens of the output, for which a truncated prompt leaves space.

        Raises:
            BatonError: CONTEXT_LENGTH_EXCEEDED, or why the prompt cannot be tokenized, or its
                pictures cannot be placed.
        """
        urls = prompt.pictures if isinstance(prompt, ChatPrompt) else []
        if urls:
            check_pictures(urls, model, options)
        most, special, around = context.tokens, self._special_tokens, options.add_special_tokens
        if options.truncate_tokens is not None:
            most *= _LONGEST_TRUNCATED
        characters = 0 if isinstance(prompt, TokenPrompt) else size_of(prompt)
        await self._turns.wait(0 if characters > LONG_CHARACTERS else characters)
        try:
            match prompt:
                case TextPrompt(text, suffix) if suffix:
                    infill = partial(
                        model.tokenizer.encode_infill, text, suffix, most, special=special != "none"
                    )
                    found = await self._threads.run(infill, characters)
                case TextPrompt(text):
                    encode = partial(
                        model.tokenizer.encode,
                        text,
                        most,
                        special=special != "none",
                        around=around is not False,
                    )
                    found = await self._threads.run(encode, characters)
                case ChatPrompt(messages, template):
                    encode_chat = partial(
                        model.tokenizer.encode_chat,
                        messages,
                        most,
                        special=special == "all",
                        around=bool(around),
                        options=template,
                    )
                    found = await self._threads.run(encode_chat, characters)
                case TokenPrompt(ids):
                    if len(ids) > most:
                        raise TooManyTokensError
                    found = list(ids)
        except TooManyTokensError:
            raise too_long(prompt, context, f"more than {most}") from None
        if urls and model.pictures is not None:
            read = partial(read_pictures, urls, self._limits)
            pictures = await self._threads.run(read, characters)
            return EncodedPrompt(*place_pictures(found, pictures, model.pictures))
        return EncodedPrompt(_truncated(found, options, context.tokens - (max_tokens or 1)))


def _truncated(ids: list[int], options: PromptOptions, room: int) -> list[int]:
    """Return the ids that a prompt keeps; `room` leaves space for its output."""
    kept = options.truncate_tokens
    if kept is None:
        return ids
    if kept == -1:
        kept = max(1, room)
    return ids[:kept] if options.keep_first else ids[-kept:]


def size_of(prompt: Prompt) -> int:
    """Return the approximate bytes of a prompt; for a conversation, the characters of its rendered
    template."""
    match prompt:
        case TextPrompt(text, suffix):
            return len(text) + len(suffix)
        case ChatPrompt(messages, options):
            written = sum(len(message.content) + len(message.name) for message in messages)
            for message in messages:
                written += sum(len(one.url) for one in message.pictures)
                if message.tool_calls:
                    written += sum(len(call.arguments) for call in message.tool_calls)
            written += _TOOL_CHARACTERS * len(options.tools)
            return written + _TEMPLATE_CHARACTERS * len(messages)
        case TokenPrompt(ids):
            return TOKEN_BYTES * len(ids)
