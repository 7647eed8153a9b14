"""What a stream tells: `Started`, then `Delta`s, one `ChoiceFinished` per choice, `Finished` last.

Frozen copies of the messages of `baton.v1`, so that users meet no protobuf types.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from baton.v1 import common_pb2, inference_pb2


class FinishReason(Enum):
    """Why an output ended."""

    STOP = "stop"
    """End of sequence, a stop token or a stop string."""
    LENGTH = "length"
    """max_tokens or the context's end."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Natural log of a chosen token's probability, and (id, log probability) of the best ones."""

    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a request consumed. Times are in seconds."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens whose KV was found instead of computed."""
    computed_tokens: int
    """Tokens that went through a forward pass, prompt and output."""
    output_tokens: int
    queue_seconds: float
    kv_byte_seconds: float


@dataclass(frozen=True, slots=True)
class Step:
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


@dataclass(frozen=True, slots=True)
class Started:
    """The request was accepted. `seed` and the tokens so far are enough to resume it."""

    request_id: str
    model: str
    seed: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Delta:
    """New output of one choice. `text` may lag behind the tokens and may be empty."""

    choice: int
    position: int
    """Of the first token, within the choice's output, from 0."""
    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[TokenLogprob, ...]
    """One per token when asked for, else none."""


@dataclass(frozen=True, slots=True)
class ChoiceFinished:
    """One choice ended; `stop_string` is empty unless a stop string ended it."""

    choice: int
    reason: FinishReason
    stop_string: str


@dataclass(frozen=True, slots=True)
class Finished:
    """All choices ended."""

    usage: Usage
    steps: tuple[Step, ...]


Event = Started | Delta | ChoiceFinished | Finished


def event_of(response: inference_pb2.GenerateResponse | inference_pb2.ChatResponse) -> Event | None:
    """The event of a response; None for an event that this release does not know."""
    match response.WhichOneof("event"):
        case "started":
            started = response.started
            return Started(started.request_id, started.model, started.seed, started.prompt_tokens)
        case "delta":
            delta = response.delta
            return Delta(
                delta.choice,
                delta.position,
                tuple(delta.token_ids),
                delta.text,
                _logprobs(delta.logprobs),
            )
        case "choice_finished":
            ended = response.choice_finished
            return ChoiceFinished(ended.choice, _reason(ended.reason), ended.stop_string)
        case "finished":
            return Finished(
                _usage(response.finished.usage), tuple(map(_step, response.finished.steps))
            )
        case None:
            return None
        case other:
            assert_never(other)


def _reason(reason: common_pb2.FinishReason.ValueType) -> FinishReason:
    if reason == common_pb2.FINISH_REASON_LENGTH:
        return FinishReason.LENGTH
    return FinishReason.STOP


def _logprobs(logprobs: Sequence[common_pb2.TokenLogprob]) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(entry.logprob, tuple((top.token_id, top.logprob) for top in entry.top))
        for entry in logprobs
    )


def _usage(usage: common_pb2.Usage) -> Usage:
    return Usage(
        usage.prompt_tokens,
        usage.cached_tokens,
        usage.computed_tokens,
        usage.output_tokens,
        usage.queue_seconds,
        usage.kv_byte_seconds,
    )


def _step(step: common_pb2.Step) -> Step:
    return Step(
        step.name,
        step.instance,
        step.start_seconds,
        step.duration_seconds,
        step.tokens,
        step.cached_tokens,
        step.bytes,
        step.detail,
    )
