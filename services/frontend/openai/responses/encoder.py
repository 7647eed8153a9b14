"""A response in JSON: whole, and as the events of a stream."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from baton.conversations.ids import RESPONSE, nth, text_of
from baton.errors import BatonError
from baton.request.stream_events import (
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    FinishReason,
    Reasoning,
    Started,
    Text,
    Usage,
)
from services.frontend.http.responses import encode_line
from services.frontend.openai.response.logprobs import ChatLogprobs
from services.frontend.openai.responses.output import (
    CANCELLED,
    COMPLETED,
    IN_PROGRESS,
    INCOMPLETE,
    ItemEvent,
    MessageItem,
    OutputItems,
)
from services.frontend.openai.responses.parse import ResponseRequest
from services.frontend.openai.responses.schema import ResponseBody
from services.frontend.openai.responses.truncation import transformations
from services.frontend.openai.responses.usage import usage_body
from services.frontend.openai.service_tier import answered_tier
from services.frontend.requests.request import ResolvedRequest

_FAILED = "failed"
_REASONS = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.CONTENT_FILTER: "content_filter",
}
"""Why a response is incomplete."""


@dataclass(frozen=True, slots=True)
class ResponseName:
    """What a response is called."""

    block: UUID
    """Its id; input items have the ids after it, and then output items."""
    created: int
    """Seconds since the Unix epoch."""
    inputs: int = 0
    """Number of its input items."""
    stored: bool = False

    @property
    def id(self) -> str:
        return text_of(RESPONSE, self.block)


class ResponseEncoder:
    """Collects the events of a request, and encodes them.

    A delta of plain text, by far the most frequent event, is two pieces of bytes around its encoded
    text.
    """

    def __init__(
        self, name: ResponseName, asked: ResponseRequest, resolved: ResolvedRequest
    ) -> None:
        self._streams = bool(asked.body.stream or asked.body.background)
        self.name = name
        self._asked = asked
        self._resolved = resolved
        self._items = OutputItems(
            nth(name.block, name.inputs + 1), asked.tools.names, asked.tools.custom, asked.seal
        )
        self._status = IN_PROGRESS
        self._completed: int | None = None
        self._usage: Usage | None = None
        self._reasoning_tokens = 0
        self._reason: FinishReason | None = None
        self._error: BatonError | None = None
        self._number = 0
        self._begun = False
        self._logprobs: ChatLogprobs | None = None
        if asked.generation.sampling.logprobs is not None:
            self._logprobs = ChatLogprobs(resolved)
        self._without_text: list[Any] = []
        """Log probabilities of tokens before the text that they are part of."""
        self._text_head = b""
        self._head_of: MessageItem | None = None
        """The message that `_text_head` is for."""

    def take(self, prompt: int, event: Event) -> bytes:
        """Add an event, and return the events of it; may be empty. There is one prompt."""
        del prompt
        if type(event) is Delta:
            if not event.parts and self._logprobs is None:
                return self._plain(event.text) if event.text else b""
            return self._encode(self._items.take(*self._parts(event)))
        return self._other(event)

    def end(self) -> bytes:
        """Return the last event of a response that ended."""
        return self._encode([(f"response.{self._status}", {"response": self.body()})])

    def failed(self, error: BatonError, number: int | None = None) -> bytes:
        """Return the last events of a response that failed after it began.

        Args:
            error: why.
            number: of the first of them; None: the next one.
        """
        self._number = self._number if number is None else number
        events = self._items.end(INCOMPLETE)
        self._status, self._error = _FAILED, error
        return self._encode([*events, ("response.failed", {"response": self.body()})])

    def cut_off(self) -> bool:
        """End a response whose client left: it is incomplete. Return whether it had begun, and not
        ended yet."""
        if not self._begun or self._status != IN_PROGRESS:
            return False
        self._items.end(INCOMPLETE)
        self._status = INCOMPLETE
        return True

    def cancelled(self) -> bytes:
        """End a response that was cancelled, and return its last events."""
        events = self._items.end(INCOMPLETE)
        self._status = CANCELLED
        return self._encode([*events, ("response.incomplete", {"response": self.body()})])

    @property
    def next_number(self) -> int:
        """The sequence number of the next event."""
        return self._number

    @property
    def resolved(self) -> ResolvedRequest:
        """What it generates."""
        return self._resolved

    @property
    def usage(self) -> Usage | None:
        """Set once it has ended as it should."""
        return self._usage

    @property
    def has_failed(self) -> bool:
        """Whether it failed after it began."""
        return self._status == _FAILED

    @property
    def input(self) -> str | list[Any] | None:
        """The input of its request."""
        return self._asked.body.input

    def body(self) -> dict[str, Any]:
        """Return the response as it is so far."""
        body, sampling, tools = self._asked.body, self._resolved.sampling, self._asked.tools
        error = self._error
        reasoning, text = body.reasoning, body.text
        told: dict[str, Any] = {"left_out": list(tools.left_out)}
        if not self._resolved.exact_continuation:
            told["exact_continuation"] = False
        if self._resolved.requested:
            told["requested_model"] = self._resolved.requested
        return {
            "id": self.name.id,
            "object": "response",
            "created_at": self.name.created,
            "status": self._status,
            "background": bool(body.background),
            "completed_at": self._completed,
            "error": None if error is None else {"code": _code(error), "message": error.message},
            "incomplete_details": self._incomplete(),
            "input_transformations": transformations(
                self._resolved.dropped, self._asked.items, self._asked.note
            ),
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "metadata": body.metadata or {},
            "model": self._resolved.named,
            "output": self._items.body(),
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "conversation": {"id": body.conversation_id} if body.conversation_id else None,
            "previous_response_id": body.previous_response_id or None,
            "reasoning": {"effort": None if reasoning is None else reasoning.effort},
            "store": self.name.stored,
            **_told_tier(body),
            "temperature": sampling.temperature,
            "text": {"format": (text.format if text is not None else None) or {"type": "text"}},
            "tool_choice": body.tool_choice or "auto",
            "tools": body.tools or [],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": sampling.top_p,
            "truncation": body.truncation or "disabled",
            "usage": None
            if self._usage is None
            else usage_body(self._usage, self._reasoning_tokens),
            "baton": told,
        }

    def _other(self, event: Event) -> bytes:
        match event:
            case Started():
                self._begun = True
                begun = {"response": self.body()}
                return self._encode(
                    [("response.created", begun), ("response.in_progress", dict(begun))]
                )
            case ChoiceFinished():
                self._reason = event.reason
                cut = event.reason in _REASONS
                return self._encode(self._items.end(INCOMPLETE if cut else COMPLETED))
            case Finished():
                self._usage = event.usage
                self._status = INCOMPLETE if self._reason in _REASONS else COMPLETED
                self._completed = int(time.time()) if self._status == COMPLETED else None
        return b""

    def _plain(self, text: str) -> bytes:
        item = self._items.open
        if type(item) is not MessageItem or not self._streams:
            return self._encode(self._items.take((Text(text),)))
        if item is not self._head_of:
            self._head_of, self._text_head = item, _text_head(item)
        item.texts.append(text)
        tail = b',"sequence_number":%d}\n\n' % self._number
        self._number += 1
        return self._text_head + encode_line(text) + tail

    def _parts(self, delta: Delta) -> tuple[Sequence[Any], Sequence[Any]]:
        """Return the parts of a delta, and the log probabilities of its tokens."""
        parts = delta.parts or ((Text(delta.text),) if delta.text else ())
        if parts and all(type(part) is Reasoning for part in parts):
            self._reasoning_tokens += len(delta.token_ids)
        if self._logprobs is None:
            return parts, ()
        taken = self._logprobs.take(delta.token_ids, delta.logprobs)["content"]
        entries, self._without_text = self._without_text + taken, []
        if not parts and entries:
            if type(self._items.open) is MessageItem:
                return (Text(""),), entries
            self._without_text = entries  # of a message that follows, if one does
        return parts, entries

    def _encode(self, events: Sequence[ItemEvent]) -> bytes:
        if not self._streams:
            return b""
        encoded = []
        for kind, fields in events:
            data = {"type": kind, "sequence_number": self._number, **fields}
            encoded.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), encode_line(data)))
            self._number += 1
        return b"".join(encoded)

    def _incomplete(self) -> dict[str, str] | None:
        if self._status != INCOMPLETE or self._reason is None:
            return None
        return {"reason": _REASONS[self._reason]}


def _told_tier(body: ResponseBody) -> dict[str, str]:
    tier = answered_tier(body.tier)
    return {} if tier is None else {"service_tier": tier}


def _text_head(item: MessageItem) -> bytes:
    """Return what precedes the text in the event of a delta."""
    return (
        b"event: response.output_text.delta\n"
        b'data: {"type":"response.output_text.delta","item_id":%b,"output_index":%d,'
        b'"content_index":0,"logprobs":[],"delta":' % (encode_line(item.id), item.at)
    )


def _code(error: BatonError) -> str:
    return error.reason.openai_code or "server_error"
