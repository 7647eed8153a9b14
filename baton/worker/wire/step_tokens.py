"""Tokens of one engine step, as a worker encodes them and a frontend decodes them."""

from collections.abc import Iterator, Sequence
from itertools import chain, repeat

from baton.engine.events import SampledTokens
from baton.internal.v1 import worker_pb2
from baton.v1 import common_pb2

COLUMNS_SINCE = 2
"""First version of the protocol that supports columns."""


ReceivedTokens = tuple[int, int, int, Sequence[int], Sequence[common_pb2.TokenLogprob]]
"""Stream, choice, position of the first token in the choice's output, tokens, log probabilities."""


class StepTokens:
    """Collects the tokens of one engine step for one frontend.

    True once it holds tokens. They are collected in lists, which become one message: a message
    object per stream would cost more than all other work on them.
    """

    __slots__ = ("_choices", "_counts", "_entries", "_positions", "_stream_ids", "_token_ids")

    def __init__(self) -> None:
        self._stream_ids: list[int] = []
        self._positions: list[int] = []
        self._choices: list[int] = []
        self._counts: list[int] = []
        self._token_ids: list[int] = []
        self._entries: list[tuple[int, SampledTokens]] = []
        """Tokens with log probabilities, which columns cannot hold."""

    def __bool__(self) -> bool:
        return bool(self._stream_ids or self._entries)

    def add(self, stream_id: int, tokens: SampledTokens) -> None:
        """Add new tokens of one choice of a stream."""
        if tokens.logprobs:
            self._entries.append((stream_id, tokens))
            return
        self._stream_ids.append(stream_id)
        self._positions.append(tokens.position)
        self._choices.append(tokens.choice)
        self._counts.append(len(tokens.token_ids))
        self._token_ids += tokens.token_ids

    def frame(self, peer_version: int) -> worker_pb2.FrameFromWorker:
        """Return the frame with all tokens for a peer of this version of the protocol."""
        frame = worker_pb2.FrameFromWorker()
        step = frame.step
        if peer_version >= COLUMNS_SINCE:
            step.stream_ids.extend(self._stream_ids)
            step.positions.extend(self._positions)
            step.token_ids.extend(self._token_ids)
            if any(self._choices):
                step.choices.extend(self._choices)
            if self._counts.count(1) != len(self._counts):
                step.counts.extend(self._counts)
        else:
            self._add_as_entries(step)
        for stream_id, tokens in self._entries:
            step.streams.add(
                stream_id=stream_id,
                choice=tokens.choice,
                position=tokens.position,
                token_ids=tokens.token_ids,
                logprobs=[entry.to_proto() for entry in tokens.logprobs],
            )
        return frame

    def _add_as_entries(self, step: worker_pb2.EngineStep) -> None:
        at = 0
        columns = zip(self._stream_ids, self._positions, self._choices, self._counts, strict=True)
        for stream_id, position, choice, count in columns:
            token_ids = self._token_ids[at : at + count]
            at += count
            step.streams.add(
                stream_id=stream_id, choice=choice, position=position, token_ids=token_ids
            )


def tokens_of(step: worker_pb2.EngineStep) -> Iterator[ReceivedTokens]:
    """Yield the tokens of a step by stream and choice, in whichever version they were sent.

    The hot path of frontends: a step without log probabilities is decoded without running any
    Python per token.

    Raises:
        ValueError: while iterating: the columns differ in length.
    """
    stream_ids = step.stream_ids
    count = len(stream_ids)
    tokens: Iterator[Sequence[int]] = (
        _split(step.token_ids, step.counts) if step.counts else zip(step.token_ids)
    )
    columns: Iterator[ReceivedTokens] = zip(
        stream_ids,
        step.choices or repeat(0, count),
        step.positions,
        tokens,
        repeat((), count),
        strict=True,
    )
    if not step.streams:
        return columns
    entries = (
        (entry.stream_id, entry.choice, entry.position, entry.token_ids, entry.logprobs)
        for entry in step.streams
    )
    return chain(columns, entries)


def _split(token_ids: Sequence[int], counts: Sequence[int]) -> Iterator[Sequence[int]]:
    at = 0
    for count in counts:
        yield token_ids[at : at + count]
        at += count
    if at != len(token_ids):
        raise ValueError(f"{len(token_ids)} tokens, but the counts add up to {at}")
