"""The events of a stream: `Started`, then `Delta`s, a `ChoiceFinished` per choice, `Finished` last.

The same as the events of `baton.v1.GenerateResponse` and `ChatResponse`, without protobuf: what a
frontend makes for HTTP and gRPC, and what users of the client get.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Self, assert_never

import msgspec

from baton.v1 import common_pb2, conversations_pb2, inference_pb2

Response = (
    inference_pb2.GenerateResponse
    | inference_pb2.ChatResponse
    | inference_pb2.SessionEvent
    | conversations_pb2.SendMessageResponse
)


class FinishReason(Enum):
    """Why an output ended."""

    STOP = "stop"
    """End of sequence, a stop token or a stop string."""
    LENGTH = "length"
    """max_tokens or the context's end."""
    TOOL_CALLS = "tool_calls"
    """The model ended it, and it has calls."""
    CONTENT_FILTER = "content_filter"
    """A provider's filter cut it off."""


class TokenLogprob(msgspec.Struct, frozen=True):
    """Natural logs of probabilities, from raw logits: a token's, and (id, log) of the best ones."""

    logprob: float
    top: tuple[tuple[int, float], ...]

    @classmethod
    def from_proto(cls, entry: common_pb2.TokenLogprob) -> Self:
        return cls(entry.logprob, tuple((top.token_id, top.logprob) for top in entry.top))

    def to_proto(self) -> common_pb2.TokenLogprob:
        top = [common_pb2.TopLogprob(token_id=token, logprob=value) for token, value in self.top]
        return common_pb2.TokenLogprob(logprob=self.logprob, top=top)


class Usage(msgspec.Struct, frozen=True):
    """What a request consumed. Times are in seconds."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens whose KV was found instead of computed."""
    computed_tokens: int
    """Tokens that went through a forward pass, prompt and output."""
    output_tokens: int
    queue_seconds: float
    kv_byte_seconds: float


class Step(msgspec.Struct, frozen=True):
    """One thing that happened to a request; `start_seconds` counts from its arrival."""

    name: str
    """`route`, `prefill`, `transfer` or `decode`."""
    instance: str
    start_seconds: float
    duration_seconds: float
    tokens: int
    cached_tokens: int
    bytes: int
    detail: str


class Started(msgspec.Struct, frozen=True):
    """The request was accepted. `seed` and the tokens so far are enough to resume it."""

    request_id: str
    model: str
    seed: int
    prompt_tokens: int
    exact_continuation: bool = True
    """Whether the output goes on with the same tokens elsewhere: if its worker is lost, or resumed.
    Where it does not, a stream whose worker is lost ends with STREAM_LOST."""
    adapter: str = ""
    """The adapter that answers; empty: the model itself."""
    provider: str = ""
    """The provider that it runs at; empty: the cluster's own workers."""
    requested_model: str = ""
    """The name that the client sent, if another model answers; empty: this one was requested."""
    response_id: str = ""
    """Of a message in a conversation: the id under which the response is stored."""


class Text(msgspec.Struct, frozen=True):
    """Text of an answer."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """Text of what the model thinks before it answers."""

    text: str


class CallBegun(msgspec.Struct, frozen=True):
    """A call of a tool began."""

    index: int
    """Among the calls of its choice, from 0."""
    id: str
    name: str


class CallArguments(msgspec.Struct, frozen=True):
    """More of a call's arguments. All of them together are JSON, as the model wrote it."""

    index: int
    text: str


class CallEnded(msgspec.Struct, frozen=True):
    """A call is whole. One that max_tokens cut off never ends."""

    index: int


Part = Text | Reasoning | CallBegun | CallArguments | CallEnded


class PromptLogprobs(msgspec.Struct, frozen=True):
    """Log probabilities of prompt tokens, in order. All of them come before the output."""

    position: int
    """Of the first one within the prompt; 1 at least, as nothing comes before the first token."""
    entries: Sequence[TokenLogprob]


class Delta(msgspec.Struct, frozen=True):
    """New output of one choice. `text` may lag behind the tokens and may be empty."""

    choice: int
    position: int
    """Of the first token, within the choice's output, from 0."""
    token_ids: Sequence[int]
    text: str
    logprobs: Sequence[TokenLogprob]
    """One per token when asked for, else none."""
    parts: Sequence[Part] = ()
    """What was read of a conversation's answer, in order, `text` included; none: `text` is all."""


class ChoiceFinished(msgspec.Struct, frozen=True):
    """One choice ended; `stop_string` is empty unless a stop string ended it."""

    choice: int
    reason: FinishReason
    stop_string: str
    stop_token_id: int | None = None
    """What ended it, if that was one of the request's stop tokens."""


class Finished(msgspec.Struct, frozen=True):
    """All choices ended."""

    usage: Usage
    steps: tuple[Step, ...]
    """What happened, in the order in which it began."""


Event = Started | PromptLogprobs | Delta | ChoiceFinished | Finished


def event_from_proto(response: Response) -> Event | None:
    """Return the event of a response; None for an error, or one of a later release."""
    if response.HasField("delta"):  # nearly all of them
        delta = response.delta
        logprobs: Sequence[TokenLogprob] = ()
        if delta.logprobs:
            logprobs = tuple(map(TokenLogprob.from_proto, delta.logprobs))
        token_ids = tuple(delta.token_ids)
        parts: Sequence[Part] = ()
        if delta.parts:
            parts = [part for one in delta.parts if (part := _part_from_proto(one)) is not None]
        return Delta(delta.choice, delta.position, token_ids, delta.text, logprobs, parts)
    match response.WhichOneof("event"):
        case "choice_finished":
            ended = response.choice_finished
            reason = _REASONS.get(ended.reason, FinishReason.STOP)
            stop_token_id = ended.stop_token_id if ended.HasField("stop_token_id") else None
            return ChoiceFinished(ended.choice, reason, ended.stop_string, stop_token_id)
        case "started":
            started = response.started
            return Started(
                started.request_id,
                started.model,
                started.seed,
                started.prompt_tokens,
                started.exact_continuation or not started.HasField("exact_continuation"),
                started.adapter,
                started.provider,
                started.requested_model,
                started.response_id,
            )
        case "prompt_logprobs":
            told = response.prompt_logprobs
            return PromptLogprobs(told.position, tuple(map(TokenLogprob.from_proto, told.entries)))
        case "finished":
            usage, steps = response.finished.usage, response.finished.steps
            return Finished(
                Usage(*(getattr(usage, name) for name in Usage.__struct_fields__)),
                tuple(
                    Step(*(getattr(one, name) for name in Step.__struct_fields__)) for one in steps
                ),
            )
        case None | "delta" | "error":
            return None
        case other:
            assert_never(other)


def event_to_proto(event: Event, response: Response) -> None:
    """Put an event into an empty response."""
    match event:
        case Delta():
            delta = response.delta
            delta.choice = event.choice
            delta.position = event.position
            delta.token_ids.extend(event.token_ids)
            delta.text = event.text
            if event.logprobs:
                delta.logprobs.extend(entry.to_proto() for entry in event.logprobs)
            for part in event.parts:
                _part_to_proto(part, delta.parts.add())
        case ChoiceFinished():
            ended = response.choice_finished
            ended.choice = event.choice
            ended.reason = _FINISH_REASONS[event.reason]
            ended.stop_string = event.stop_string
            if event.stop_token_id is not None:
                ended.stop_token_id = event.stop_token_id
        case PromptLogprobs():
            response.prompt_logprobs.position = event.position
            response.prompt_logprobs.entries.extend(one.to_proto() for one in event.entries)
        case Started():
            started = response.started
            started.request_id = event.request_id
            started.model = event.model
            started.seed = event.seed
            started.prompt_tokens = event.prompt_tokens
            started.exact_continuation = event.exact_continuation
            started.adapter = event.adapter
            started.provider = event.provider
            started.requested_model = event.requested_model
            started.response_id = event.response_id
        case Finished():
            usage, steps = msgspec.structs.asdict(event.usage), event.steps
            response.finished.usage.CopyFrom(common_pb2.Usage(**usage))
            response.finished.steps.extend(
                common_pb2.Step(**msgspec.structs.asdict(step)) for step in steps
            )


_FINISH_REASONS = {
    FinishReason.STOP: common_pb2.FINISH_REASON_STOP,
    FinishReason.LENGTH: common_pb2.FINISH_REASON_LENGTH,
    FinishReason.TOOL_CALLS: common_pb2.FINISH_REASON_TOOL_CALLS,
    FinishReason.CONTENT_FILTER: common_pb2.FINISH_REASON_CONTENT_FILTER,
}
_REASONS = {value: reason for reason, value in _FINISH_REASONS.items()}


def _part_from_proto(part: inference_pb2.DeltaPart) -> Part | None:
    """Return a part; None: it is of a later release."""
    match part.WhichOneof("part"):
        case "text":
            return Text(part.text)
        case "reasoning":
            return Reasoning(part.reasoning)
        case "call_begun":
            begun = part.call_begun
            return CallBegun(begun.index, begun.id, begun.name)
        case "call_arguments":
            return CallArguments(part.call_arguments.index, part.call_arguments.text)
        case "call_ended":
            return CallEnded(part.call_ended.index)
        case _:
            return None


def _part_to_proto(part: Part, message: inference_pb2.DeltaPart) -> None:
    match part:
        case Text():
            message.text = part.text
        case Reasoning():
            message.reasoning = part.text
        case CallBegun():
            begun = message.call_begun
            begun.index, begun.id, begun.name = part.index, part.id, part.name
        case CallArguments():
            message.call_arguments.index = part.index
            message.call_arguments.text = part.text
        case CallEnded():
            message.call_ended.index = part.index
