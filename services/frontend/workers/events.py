"""Events of a request's worker streams, as delivered to the request."""

from baton.internal.v1 import worker_pb2
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
)
