"""The stream of OpenAI's chat completions, from an upstream. Pure."""

from typing import Any

import msgspec

from baton.request.stream_events import FinishReason, Text
from services.frontend.providers.answer import BadAnswerError, ChoiceAnswer, taken
from services.frontend.providers.refused import stream_failure
from services.frontend.workers.events import ProviderOutput, ProviderUsage

_DONE = b"[DONE]"
_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_NOTHING = msgspec.Raw(b"null")


class _FunctionPiece(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _CallPiece(msgspec.Struct, gc=False):
    index: int | None = None
    id: str | None = None
    function: _FunctionPiece | None = None


class _ChunkDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallPiece] | None = None


class _ChunkChoice(msgspec.Struct, gc=False):
    index: int = 0
    delta: _ChunkDelta | None = None
    finish_reason: str | None = None


class _CompletionChunk(msgspec.Struct, gc=False):
    choices: list[_ChunkChoice] = []
    usage: msgspec.Raw = _NOTHING
    error: msgspec.Raw = _NOTHING


class _PromptDetails(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class _ChunkUsage(msgspec.Struct, gc=False):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _PromptDetails | None = None


_decode = msgspec.json.Decoder(_CompletionChunk).decode
_decode_usage = msgspec.json.Decoder(_ChunkUsage).decode


class OpenAiStream:
    """Reads the events of one answer.

    Args:
        n: choices of the request.
        request_id: of the request.
    """

    def __init__(self, n: int, request_id: str) -> None:
        self._choices = [ChoiceAnswer(choice, request_id) for choice in range(n)]
        self.usage: ProviderUsage | None = None
        """The latest usage; None: none was sent, or it is not one."""
        self.done = False
        """Whether the upstream said that the stream has ended."""

    @property
    def complete(self) -> bool:
        """Whether all choices have ended."""
        return all(choice.reason is not None for choice in self._choices)

    def read(self, data: bytes) -> list[ProviderOutput]:
        """Return the output in an event; none in those after the end.

        Raises:
            BadAnswerError: it is no event of the API.
            UpstreamFailure: the upstream reports an error.
        """
        self.done = self.done or data == _DONE
        if self.done:
            return []
        try:
            chunk = _decode(data)
        except msgspec.DecodeError:
            raise BadAnswerError("an event is not a chunk of a chat completion") from None
        if chunk.error is not _NOTHING and chunk.error != _NOTHING:
            raise stream_failure(bytes(chunk.error))
        if chunk.usage is not _NOTHING and chunk.usage != _NOTHING:
            self._count(chunk.usage)
        if len(chunk.choices) == 1 and (output := self._only_text(chunk.choices[0])) is not None:
            return [output]
        for choice in chunk.choices:
            self._add(choice)
        return taken(self._choices) if chunk.choices else []

    def _only_text(self, choice: _ChunkChoice) -> ProviderOutput | None:
        """Return the output of an event that has only text, as nearly all; None: it has more.

        Nothing waits in a choice between two events.
        """
        delta = choice.delta
        if (
            delta is None
            or not delta.content
            or choice.finish_reason
            or delta.reasoning_content
            or delta.reasoning
            or delta.refusal
            or delta.tool_calls
            or not 0 <= choice.index < len(self._choices)
            or self._choices[choice.index].reason is not None
        ):
            return None
        return ProviderOutput(choice.index, (Text(delta.content),), len(delta.content))

    def _add(self, choice: _ChunkChoice) -> None:
        if not 0 <= choice.index < len(self._choices):
            raise BadAnswerError("an event is of a choice that was not requested")
        answer, delta = self._choices[choice.index], choice.delta
        if answer.reason is not None:
            return
        if delta is not None:
            answer.say(delta.reasoning_content or delta.reasoning, reasoning=True)
            answer.say(delta.content)
            answer.say(delta.refusal)
            for call in delta.tool_calls or ():
                function = call.function or _FunctionPiece()
                name, arguments = function.name or "", function.arguments or ""
                answer.call(call.index, call.id or "", name, arguments)
        if choice.finish_reason:
            answer.finish(_REASONS.get(choice.finish_reason, FinishReason.STOP))

    def _count(self, raw: msgspec.Raw) -> None:
        try:
            usage = _decode_usage(raw)
        except msgspec.DecodeError:
            self.usage = None
            return
        details: Any = usage.prompt_tokens_details
        cached = (details.cached_tokens or 0) if details is not None else 0
        self.usage = ProviderUsage(usage.prompt_tokens, cached, usage.completion_tokens)
