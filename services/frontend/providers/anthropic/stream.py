"""The stream of Anthropic's Messages, from an upstream. Pure."""

from typing import Any

import msgspec

from baton.request.stream_events import FinishReason
from services.frontend.providers.answer import BadAnswerError, ChoiceAnswer, taken
from services.frontend.providers.refused import stream_failure
from services.frontend.workers.events import ProviderOutput, ProviderUsage

_REASONS = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "refusal": FinishReason.CONTENT_FILTER,
}
_NOTHING = msgspec.Raw(b"null")


class _Block(msgspec.Struct, gc=False):
    type: str = ""
    text: str = ""
    thinking: str = ""
    id: str = ""
    name: str = ""
    input: dict[str, Any] = {}


class _BlockDelta(msgspec.Struct, gc=False):
    """Of a block, or of the message: then it has a reason."""

    type: str = ""
    text: str = ""
    thinking: str = ""
    partial_json: str = ""
    stop_reason: str | None = None


class _StartedMessage(msgspec.Struct, gc=False):
    usage: msgspec.Raw = _NOTHING


class _MessageEvent(msgspec.Struct, gc=False):
    type: str
    index: int = -1
    delta: _BlockDelta | None = None
    content_block: _Block | None = None
    message: _StartedMessage | None = None
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


class _MessageUsage(msgspec.Struct, gc=False):
    """Counts so far; a later one replaces an earlier one."""

    input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens: int | None = None


_decode = msgspec.json.Decoder(_MessageEvent).decode
_decode_usage = msgspec.json.Decoder(_MessageUsage).decode


class AnthropicStream:
    """Reads the events of one answer, which has one choice.

    Args:
        n: choices of the request: 1.
        request_id: of the request.
    """

    def __init__(self, n: int, request_id: str) -> None:  # noqa: ARG002 - one is all there are
        self._choice = ChoiceAnswer(0, request_id)
        self._calls: dict[int, bool] = {}
        """Blocks that are calls and have not ended: whether they have arguments."""
        self._counts: dict[str, int] = {}
        self._counted = True
        """False: what was sent as usage is not one."""
        self.done = False
        """Whether the upstream said that the stream has ended."""

    @property
    def complete(self) -> bool:
        """Whether the choice has ended."""
        return self._choice.reason is not None

    @property
    def usage(self) -> ProviderUsage | None:
        """What was counted; None: nothing, so far."""
        counts = self._counts
        if not self._counted or not {"input_tokens", "output_tokens"} <= counts.keys():
            return None
        cached = counts.get("cache_read_input_tokens", 0)
        prompt = counts["input_tokens"] + counts.get("cache_creation_input_tokens", 0) + cached
        return ProviderUsage(prompt, cached, counts["output_tokens"])

    def read(self, data: bytes) -> list[ProviderOutput]:
        """Return the output in an event; none in those after the end.

        Raises:
            BadAnswerError: it is no event of the API.
            UpstreamFailure: the upstream reports an error.
        """
        if self.done:
            return []
        try:
            event = _decode(data)
        except msgspec.DecodeError:
            raise BadAnswerError("an event is not one of a message") from None
        if event.delta is not None and event.type == "content_block_delta":
            self._add(event.index, event.delta)
            return taken((self._choice,))
        match event.type:
            case "error":
                raise stream_failure(bytes(event.error))
            case "message_start" if event.message is not None:
                self._count(event.message.usage)
            case "content_block_start" if event.content_block is not None:
                self._begin(event.index, event.content_block)
            case "content_block_stop" if self._calls.pop(event.index, True) is False:
                self._choice.call(event.index, "", "", "{}")
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None and event.delta.stop_reason and not self.complete:
                    reason = _REASONS.get(event.delta.stop_reason, FinishReason.STOP)
                    self._choice.finish(reason)
            case "message_stop":
                self.done = True
        return taken((self._choice,))

    def _begin(self, index: int, block: _Block) -> None:
        if self.complete:
            return
        self._choice.say(block.thinking, reasoning=True)
        self._choice.say(block.text)
        if block.type == "tool_use":
            whole = msgspec.json.encode(block.input).decode() if block.input else ""
            self._choice.call(index, block.id, block.name, whole)
            self._calls[index] = bool(whole)

    def _add(self, index: int, delta: _BlockDelta) -> None:
        if self.complete:
            return
        self._choice.say(delta.thinking, reasoning=True)
        self._choice.say(delta.text)
        if delta.partial_json and index in self._calls:
            self._calls[index] = True
            self._choice.call(index, "", "", delta.partial_json)

    def _count(self, raw: msgspec.Raw) -> None:
        if raw == _NOTHING:
            return
        try:
            usage = _decode_usage(raw)
        except msgspec.DecodeError:
            self._counted = False
            return
        for name in usage.__struct_fields__:
            if (count := getattr(usage, name)) is not None:
                self._counts[name] = count
