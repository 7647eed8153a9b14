"""Tokens arrive as they were sampled, in columns or as entries, to peers of either version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.engine.events import SampledTokens
from baton.internal.v1 import worker_pb2
from baton.request.stream_events import TokenLogprob
from baton.rpc.protocol import VERSION
from baton.worker.wire.step_tokens import StepTokens, tokens_of

LOGPROBS = st.builds(
    TokenLogprob, st.just(-0.5), st.tuples(st.tuples(st.integers(0, 99), st.just(-1.5)))
)


@st.composite
def sampled(draw: st.DrawFn) -> tuple[int, SampledTokens]:
    token_ids = draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3))
    logprobs = [draw(LOGPROBS) for _ in token_ids] if draw(st.booleans()) else []
    stream_id = draw(st.integers(1, 2**40))
    choice, position = draw(st.integers(0, 15)), draw(st.integers(0, 2**20))
    return stream_id, SampledTokens(7, choice, position, tuple(token_ids), tuple(logprobs))


def read(step: worker_pb2.EngineStep) -> list[tuple[object, ...]]:
    found = []
    for stream_id, choice, position, token_ids, logprobs in tokens_of(step):
        given = tuple(TokenLogprob.from_proto(entry) for entry in logprobs)
        found.append((stream_id, choice, position, tuple(token_ids), given))
    return sorted(found, key=str)


@given(
    step=st.lists(sampled(), min_size=1, max_size=8),
    version=st.sampled_from([VERSION - 1, VERSION]),
)
def test_what_was_sampled_arrives(step: list[tuple[int, SampledTokens]], version: int) -> None:
    made = StepTokens()
    assert not made
    for stream_id, tokens in step:
        made.add(stream_id, tokens)
        assert made
    frame = worker_pb2.FrameFromWorker.FromString(made.frame(version).SerializeToString())
    sent = [
        (stream_id, one.choice, one.position, one.token_ids, one.logprobs)
        for stream_id, one in step
    ]
    assert read(frame.step) == sorted(sent, key=str)
    if version < 2:
        assert not frame.step.stream_ids


def test_a_step_of_single_tokens_has_the_columns_that_it_needs_and_no_entries() -> None:
    made = StepTokens()
    for stream_id in range(1, 65):
        made.add(stream_id, SampledTokens(stream_id, 0, 300, (1000 + stream_id,)))
    step = made.frame(VERSION).step
    assert list(step.stream_ids) == list(range(1, 65))
    assert not step.streams
    assert not step.choices
    assert not step.counts


@pytest.mark.parametrize(
    "step",
    [
        worker_pb2.EngineStep(stream_ids=[1, 2], positions=[0], token_ids=[5, 6]),
        worker_pb2.EngineStep(stream_ids=[1, 2], positions=[0, 0], token_ids=[5]),
        worker_pb2.EngineStep(stream_ids=[1], positions=[0], token_ids=[5, 6]),
        worker_pb2.EngineStep(stream_ids=[1, 2], positions=[0, 0], choices=[1], token_ids=[5, 6]),
        worker_pb2.EngineStep(stream_ids=[1], positions=[0], counts=[3], token_ids=[5, 6]),
        worker_pb2.EngineStep(stream_ids=[1], positions=[0], counts=[1, 1], token_ids=[5, 6]),
        worker_pb2.EngineStep(token_ids=[5]),
    ],
)
def test_columns_that_do_not_fit_are_refused(step: worker_pb2.EngineStep) -> None:
    with pytest.raises(ValueError, match=r"zip|counts"):
        list(tokens_of(step))
