"""What a running request tells its surface: `Started`, `Delta`s, a `ChoiceFinished` per choice,
and `Finished` at last. The same as the events of `baton.v1.GenerateResponse`, without protobuf.
"""

from collections.abc import Sequence

import msgspec

from baton.v1 import common_pb2


class Started(msgspec.Struct, frozen=True):
    """The request was accepted and placed."""

    request_id: str
    model: str
    seed: int
    prompt_tokens: int


class Delta(msgspec.Struct, frozen=True):
    """New output of one choice; the text may lag behind the tokens and may be empty."""

    choice: int
    position: int
    token_ids: Sequence[int]
    text: str
    logprobs: Sequence[common_pb2.TokenLogprob]
    """One per token when asked for, else none."""


class ChoiceFinished(msgspec.Struct, frozen=True):
    """One choice ended."""

    choice: int
    reason: common_pb2.FinishReason.ValueType
    stop_string: str
    """What ended it, when that was a stop string; else empty."""


class Finished(msgspec.Struct, frozen=True):
    """All choices ended."""

    usage: common_pb2.Usage
    steps: Sequence[common_pb2.Step]


Event = Started | Delta | ChoiceFinished | Finished
