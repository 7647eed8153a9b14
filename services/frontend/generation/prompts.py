"""Token ids of prompts, made in turns and on threads where they are long."""

from functools import partial

from services.frontend.generation.generation import TOKEN_BYTES
from services.frontend.generation.turns import LoopTurns
from services.frontend.models.model import Model
from services.frontend.requests import validate
from services.frontend.requests.context import ContextLimit
from services.frontend.requests.request import ChatPrompt, Prompt, TextPrompt, TokenPrompt
from services.frontend.text.tokenizer import (
    LONG_CHARACTERS,
    TokenizerThreads,
    TooManyTokensError,
)

_TEMPLATE_CHARACTERS = 32
"""What a chat template writes around a message, about."""


class PromptEncoder:
    """Makes token ids of prompts. Lives on the event loop.

    Args:
        threads: where long prompts are tokenized.
        turns: let so much be tokenized in one turn of the loop.
        special_tokens: as the setting `text.special_tokens` says.
    """

    def __init__(self, threads: TokenizerThreads, turns: LoopTurns, special_tokens: str) -> None:
        self._threads = threads
        self._turns = turns
        self._special_tokens = special_tokens

    async def encode(self, model: Model, prompt: Prompt, context: ContextLimit) -> list[int]:
        """Return the ids of a prompt.

        Args:
            model: whose tokens they are.
            prompt: as it was sent.
            context: the most of them.

        Raises:
            BatonError: CONTEXT_LENGTH_EXCEEDED, or why it cannot be tokenized.
        """
        most, special = context.tokens, self._special_tokens
        characters = 0 if isinstance(prompt, TokenPrompt) else size_of(prompt)
        await self._turns.wait(0 if characters > LONG_CHARACTERS else characters)
        try:
            match prompt:
                case TextPrompt(text):
                    encode = partial(model.tokenizer.encode, text, most, special=special != "none")
                    return await self._threads.run(encode, characters)
                case ChatPrompt(messages):
                    encode_chat = partial(
                        model.tokenizer.encode_chat, messages, most, special=special == "all"
                    )
                    return await self._threads.run(encode_chat, characters)
                case TokenPrompt(ids):
                    if len(ids) > most:
                        raise TooManyTokensError
                    return list(ids)
        except TooManyTokensError:
            raise validate.too_long(prompt, context, f"more than {most}") from None


def size_of(prompt: Prompt) -> int:
    """Return the bytes that a prompt holds, about; of a conversation, the characters that its
    template makes of it."""
    match prompt:
        case TextPrompt(text):
            return len(text)
        case ChatPrompt(messages):
            written = sum(len(message.content) + len(message.name) for message in messages)
            return written + _TEMPLATE_CHARACTERS * len(messages)
        case TokenPrompt(ids):
            return TOKEN_BYTES * len(ids)
