"""A summary: the request that generates it, and the item that it becomes."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from baton.conversations.ids import item_text
from baton.errors import BatonError, Reason
from baton.request.stream_events import Delta, Event, Finished, Text, Usage
from baton.sampling import SamplingParams
from services.frontend.openai.responses.input.item_types import COMPACTION
from services.frontend.openai.responses.input.sealing import SUMMARY, ItemSeal
from services.frontend.openai.responses.input.summaries import question
from services.frontend.output.definitions import CallMode
from services.frontend.requests.request import WHOLE_PROMPT, ChatPrompt, GenerationRequest
from services.frontend.text.chat_template import ChatMessage

MOST_TOKENS = 1024
"""Of a summary."""
_THINKING = "enable_thinking"


def summary_request(
    asked: GenerationRequest, messages: Sequence[ChatMessage], most_tokens: int = MOST_TOKENS
) -> GenerationRequest:
    """Return the request for a summary of messages, with what a request's prompt has besides them.

    Instructions and tools are shown as they were, so that the prompt begins with the same tokens.

    Args:
        asked: the request.
        messages: with instructions.
        most_tokens: of the summary.
    """
    prompt, tools = asked.prompt, asked.tools
    assert isinstance(prompt, ChatPrompt), "responses are conversations"
    options = replace(prompt.options, hints={_THINKING: False})
    return replace(
        asked,
        prompt=replace(prompt, messages=[*messages, question()], options=options),
        sampling=SamplingParams(),
        given=frozenset(),
        prompt_options=WHOLE_PROMPT,
        tools=None if tools is None else replace(tools, calls=CallMode.NONE, allowed=None),
        most_output=most_tokens,
    )


def compaction_item(summary: str, seal: ItemSeal, ident: UUID) -> dict[str, Any]:
    """Return the item of a summary, which its client cannot read."""
    item = {"type": COMPACTION, "encrypted_content": seal.close(summary, SUMMARY)}
    return {"id": item_text(item, ident), **item}


class SummaryText:
    """Collects the events of a summary."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self.usage: Usage | None = None
        """Set at its end."""

    def take(self, events: Sequence[Event]) -> bool:
        """Add events; there are never enough."""
        for event in events:
            if type(event) is Delta:
                parts = event.parts or (Text(event.text),)
                self._texts += [part.text for part in parts if type(part) is Text]
            elif type(event) is Finished:
                self.usage = event.usage
        return False

    def text(self) -> str:
        """Return the summary.

        Raises:
            BatonError: INTERNAL: the model wrote none.
        """
        text = "".join(self._texts).strip()
        if not text:
            raise BatonError(
                Reason.INTERNAL, "the model wrote no summary: retry, or use another model"
            )
        return text
