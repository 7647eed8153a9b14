"""The handler of `/v1/responses/compact`."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from baton.conversations.ids import RESPONSE, draw_block, item_text, nth, text_of
from baton.errors import BatonError, Reason
from baton.request.stream_events import Event
from baton.settings import FrontendLimits, HttpSettings
from services.frontend.generation.inference import Inference
from services.frontend.http.asgi import Receive, Scope, Send
from services.frontend.http.disconnect import WhileConnected
from services.frontend.http.protocol.connection import connection_of
from services.frontend.http.routes import Route
from services.frontend.openai.body import names_of, read_body
from services.frontend.openai.multi_prompt import GenerationBatch
from services.frontend.openai.responses.compaction.body import read_compact
from services.frontend.openai.responses.compaction.summary import (
    SummaryText,
    compaction_item,
    summary_request,
)
from services.frontend.openai.responses.input.item_types import MESSAGE
from services.frontend.openai.responses.input.prepare import PreparedResponse, ResponsePreparer
from services.frontend.openai.responses.input.sealing import ItemSeal
from services.frontend.openai.responses.storing import input_items
from services.frontend.openai.responses.usage import usage_body
from services.frontend.openai.stream import answer_whole
from services.frontend.requests import record
from services.frontend.requests.request import ChatPrompt

_KEPT = 4
"""Messages of the user are kept up to the context's tokens divided by this."""
_TOKEN_BYTES = 4
"""About as many bytes a token has."""


class CompactHandler:
    """Replaces items by a summary for clients that keep them. One object per frontend.

    Args:
        inference: generates summaries.
        settings: bounds of bodies.
        limits: of requests.
        preparer: reads bodies.
    """

    def __init__(
        self,
        inference: Inference,
        settings: HttpSettings,
        limits: FrontendLimits,
        preparer: ResponsePreparer,
    ) -> None:
        self._inference = inference
        self._settings = settings
        self._limits = limits
        self._preparer = preparer

    async def compact(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Return shorter items in place of others: instructions, the last messages of the user, and
        a sealed summary of all."""
        data = await read_body(scope, receive, self._settings, self._limits)
        unknown = self._settings.unknown_fields == "ignore"
        caller, wire = record.current(), connection_of(scope)
        body = read_compact(data, unknown=unknown)
        prepared = await self._preparer.of_body(data, body, names_of(scope), caller.principal)
        seal = await self._preparer.seal(caller.principal)
        asked = prepared.asked.generation
        assert isinstance(asked.prompt, ChatPrompt), "responses are conversations"
        request = summary_request(asked, asked.prompt.messages)
        batch = GenerationBatch()
        try:
            async with WhileConnected(wire):  # a long prompt may wait to be tokenized
                await batch.start(self._inference, [request], caller)
            model = batch.generations[0].request.model
            kept = kept_items(prepared, model.context_tokens // _KEPT * _TOKEN_BYTES)
            await answer_whole(batch, _CompactedResponse(kept, seal), wire, send)
        finally:
            batch.close()

    def routes(self) -> list[Route]:
        """Return the routes of this handler."""
        return [Route("POST", "/v1/responses/compact", "compaction", self.compact)]


def kept_items(prepared: PreparedResponse, most_bytes: int) -> list[dict[str, Any]]:
    """Return the messages that stay next to a summary, in order: all of the system and developer,
    and the last ones of the user.

    Args:
        prepared: has all items.
        most_bytes: of the user's messages.
    """
    kept: list[dict[str, Any]] = []
    items: Sequence[Mapping[str, Any]] = [
        *prepared.context.items,
        *input_items(prepared.body.input),
    ]
    room = most_bytes
    for item in reversed(items):
        role = item.get("role") if item.get("type") == MESSAGE else None
        if role == "user":
            room -= sum(len(part.get("text") or "") for part in item["content"])
        if role in ("system", "developer") or (role == "user" and room >= 0):
            kept.append(dict(item))
    return kept[::-1]


class _CompactedResponse:
    """Collects a summary, and what stays next to it.

    Args:
        kept: the items that stay.
        seal: of the tenant.
    """

    def __init__(self, kept: list[dict[str, Any]], seal: ItemSeal) -> None:
        self._kept = kept
        self._seal = seal
        self._summary = SummaryText()

    def take(self, prompt: int, event: Event) -> None:
        del prompt  # there is one
        self._summary.take((event,))

    def body(self) -> dict[str, Any]:
        """Return the response.

        Raises:
            BatonError: INTERNAL: the model wrote no summary.
        """
        usage = self._summary.usage
        if usage is None:
            raise BatonError(Reason.INTERNAL, "the summary has no end")
        now = time.time()
        block = draw_block(int(now * 1000))
        output = [
            {"id": item_text(item, nth(block, at)), **item} for at, item in enumerate(self._kept, 1)
        ]
        ident = nth(block, len(output) + 1)
        return {
            "id": text_of(RESPONSE, block),
            "object": "response.compaction",
            "created_at": int(now),
            "output": [*output, compaction_item(self._summary.text(), self._seal, ident)],
            "usage": usage_body(usage),
        }
