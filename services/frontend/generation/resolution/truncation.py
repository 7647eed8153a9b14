"""Conversations that are longer than the model's context: their oldest turns are left out."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from weakref import WeakKeyDictionary

from baton.errors import BatonError, Reason
from services.frontend.generation.resolution.prompts import PromptEncoder, size_of
from services.frontend.models.model import ServedModel
from services.frontend.requests.context import RequestContextLimit
from services.frontend.requests.request import (
    ChatPrompt,
    DroppedTurns,
    EncodedPrompt,
    Prompt,
    PromptOptions,
)
from services.frontend.text.chat_template import ChatMessage
from services.frontend.text.message_sizes import MessageSizes
from services.frontend.text.tokenizer import Tokenizer, TokenizerThreads
from services.frontend.text.turns import TurnCutter, steps_of

_OUTPUT = 8
"""Part of the context that is kept for an output of any length."""
_MARGIN = 32
"""Part of the limit by which the sum of messages' sizes may be wrong."""


class TurnTruncation:
    """Encodes conversations without the turns that do not fit. Runs on the event loop.

    Args:
        prompts: encodes what is kept.
        threads: where long conversations are counted.
    """

    def __init__(self, prompts: PromptEncoder, threads: TokenizerThreads) -> None:
        self._prompts = prompts
        self._threads = threads
        self._sizes: WeakKeyDictionary[Tokenizer, MessageSizes] = WeakKeyDictionary()

    async def encode(
        self,
        model: ServedModel,
        prompt: Prompt,
        context: RequestContextLimit,
        options: PromptOptions,
        max_tokens: int | None,
    ) -> EncodedPrompt:
        """Return the tokens of a prompt, and what they leave out of a conversation.

        Args:
            model: the model.
            prompt: as the client sent it.
            context: the most tokens.
            options: whether turns may be left out, and those that are.
            max_tokens: the most tokens of the output; None: as many as there is space for.

        Raises:
            BatonError: CONTEXT_LENGTH_EXCEEDED: not even the last turn fits; or as of
                `PromptEncoder.encode`.
        """
        if not (options.drop_turns and isinstance(prompt, ChatPrompt)):
            return await self._prompts.encode(model, prompt, context, options, max_tokens)
        reserved = context.tokens // _OUTPUT if max_tokens is None else max(1, max_tokens)
        limit = context.tokens - reserved
        cutter = await self._threads.run(
            partial(self._cutter, model.tokenizer, prompt, options), size_of(prompt)
        )
        margin = limit // _MARGIN
        was_run = cutter.total > limit + margin
        if was_run:  # it cannot fit: nothing of it has to be tokenized to know
            cutter.run(limit - margin)
        while True:
            dropped, tokens = cutter.left_out
            kept = _without(prompt, dropped) if dropped else prompt
            found, error = None, None
            try:
                found = await self._prompts.encode(model, kept, context, options, max_tokens)
            except BatonError as raised:
                if raised.reason is not Reason.CONTEXT_LENGTH_EXCEEDED:
                    raise
                error = raised
            if found is None or len(found.ids) > limit:
                if not was_run:
                    was_run = True
                    cutter.run(limit - margin)
                if cutter.left_out[0] != dropped or cutter.advance():
                    continue
            if found is None:
                assert error is not None
                raise error
            if not dropped:
                return found
            return found._replace(dropped=DroppedTurns(cutter.cut, frozenset(dropped), tokens))

    async def first_turns(
        self, model: ServedModel, prompt: ChatPrompt, limit: int, most: int, added: int
    ) -> tuple[int, int]:
        """Return which turns a summary is to stand for, if a conversation is beyond a limit.

        Args:
            model: the model.
            prompt: the conversation.
            limit: tokens; the turns that stay have about three quarters of it.
            most: tokens that the turns may have together with what is before them.
            added: tokens that come into their place.

        Returns:
            The index of the first message that stays, and the tokens of turns before it; 0: none.
        """
        options = PromptOptions(drop_turns=True)
        cutter = await self._threads.run(
            partial(self._cutter, model.tokenizer, prompt, options), size_of(prompt)
        )
        cutter.run(limit - limit // _MARGIN, added)
        return cutter.first_turns(most)

    def _cutter(
        self, tokenizer: Tokenizer, prompt: ChatPrompt, options: PromptOptions
    ) -> TurnCutter:
        sizes = self._sizes.get(tokenizer)
        if sizes is None:
            sizes = self._sizes[tokenizer] = MessageSizes(tokenizer)
        messages, steps = prompt.messages, steps_of(prompt.messages, prompt.summaries)
        last = max((step.messages[0] for step in steps if step.user), default=0)
        tokens = [
            sum(sizes.of(messages[at], last=at > last) for at in step.messages) for step in steps
        ]
        within = {at for step in steps for at in step.messages}
        pinned = [each for at, each in enumerate(messages) if at not in within]
        fixed = sizes.fixed(pinned, prompt.options)
        return TurnCutter(steps, tokens, fixed, options.cut)


def _without(prompt: ChatPrompt, dropped: set[int]) -> ChatPrompt:
    messages: Sequence[ChatMessage] = [
        message for at, message in enumerate(prompt.messages) if at not in dropped
    ]
    return replace(prompt, messages=messages)
