"""The fields of a message are counted as its parser would find them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.rpc.wire.fields import has_more_fields
from baton.v1 import common_pb2, inference_pb2

CHAT = inference_pb2.ChatRequest.DESCRIPTOR
SESSION = inference_pb2.SessionRequest.DESCRIPTOR


def request() -> inference_pb2.ChatRequest:
    """Return a request of 16 fields."""
    return inference_pb2.ChatRequest(
        context=common_pb2.RequestContext(model="m", request_id="id"),  # 3
        messages=[inference_pb2.ChatMessage(role="user", content="x")] * 2,  # 6
        sampling=common_pb2.SamplingParams(
            stop=["a", "b"], temperature=0.5, logit_bias={7: 1.0}, seed=-1
        ),  # 1 + 2 + 1 + 3 + 1: an entry of a map is a message of two fields
        resume=inference_pb2.Resume(output_ids=[1, 2, 300]),  # 2: packed
    )


def fields(data: bytes, message: object = CHAT) -> int:
    return next(most for most in range(100) if not has_more_fields(data, message, most))  # type: ignore[arg-type]


def test_fields_of_submessages_count():
    assert fields(request().SerializeToString()) == 19
    assert fields(b"") == 0


def test_those_of_a_session_too():
    start = inference_pb2.SessionStart(id=1, chat=request(), timeout_seconds=2.5)
    message = inference_pb2.SessionRequest(starts=[start], cancels=[1, 2])
    assert fields(message.SerializeToString(), SESSION) == 19 + 5


@given(st.binary(max_size=60))
def test_what_is_no_message_is_left_to_the_parser(data):
    assert not has_more_fields(data, CHAT, len(data))


def test_two_million_fields_are_not_all_looked_at():
    assert has_more_fields(memoryview(b"\x12\x00" * 2_000_000), CHAT, 1000)


@pytest.mark.parametrize(
    "before", [b"\xa3\x06\xa4\x06", b"\xa3\x06\x08\x01\xa4\x06", b"\x92\x00\x00"]
)
def test_nothing_before_them_hides_fields(before: bytes):
    data = before + b"\x12\x00" * 2000
    assert len(inference_pb2.ChatRequest.FromString(data).messages) >= 2000
    assert has_more_fields(data, CHAT, 1000)
