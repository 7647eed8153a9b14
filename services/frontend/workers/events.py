"""Reports of what runs a request, as delivered to the request: workers' streams, or a provider."""

from collections.abc import Sequence

from baton.errors import BatonError
from baton.internal.v1 import worker_pb2
from baton.request.stream_events import FinishReason, Part
from baton.v1 import common_pb2


class TokensReceived:
    """Tokens of one choice, in order."""

    __slots__ = ("choice", "logprobs", "position", "stream_id", "token_ids")

    def __init__(
        self,
        stream_id: int,
        choice: int,
        position: int,
        token_ids: list[int],
        logprobs: list[common_pb2.TokenLogprob],
    ) -> None:
        self.stream_id = stream_id
        self.choice = choice
        self.position = position
        self.token_ids = token_ids
        self.logprobs = logprobs


class StreamLost:
    """The connection of a stream broke; the stream has no further events."""

    __slots__ = ("stream_id",)

    def __init__(self, stream_id: int) -> None:
        self.stream_id = stream_id


class WorkerProbed:
    """Whether the worker of a lost stream has died."""

    __slots__ = ("died", "stream_id")

    def __init__(self, stream_id: int, died: bool) -> None:
        self.stream_id = stream_id
        self.died = died


class ProviderOutput:
    """More output of one choice at a provider."""

    __slots__ = ("bytes", "choice", "parts", "reason")

    def __init__(
        self, choice: int, parts: Sequence[Part], size: int, reason: FinishReason | None = None
    ) -> None:
        self.choice = choice
        self.parts = parts
        self.bytes = size
        """Approximate bytes of its texts."""
        self.reason = reason
        """Why the choice ended with this; None: it continues."""


class ProviderUsage:
    """What a provider counted. It may be wrong."""

    __slots__ = ("cached_tokens", "output_tokens", "prompt_tokens")

    def __init__(self, prompt_tokens: int, cached_tokens: int, output_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.cached_tokens = cached_tokens
        self.output_tokens = output_tokens


class ProviderEnded:
    """A provider sends nothing more: everything was delivered, or it failed."""

    __slots__ = ("error",)

    def __init__(self, error: BatonError | None = None) -> None:
        self.error = error


StreamEvent = (
    TokensReceived
    | StreamLost
    | WorkerProbed
    | worker_pb2.Prepared
    | worker_pb2.Begun
    | worker_pb2.PromptLogprobs
    | worker_pb2.StreamFinished
    | worker_pb2.StreamFailed
    | worker_pb2.StreamHandedOver
    | ProviderOutput
    | ProviderUsage
    | ProviderEnded
)
