"""Events of streams are the same on both sides of the wire."""

import pytest

from baton.request.stream_events import (
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    FinishReason,
    Started,
    Step,
    TokenLogprob,
    Usage,
    event_from_proto,
    event_to_proto,
)
from baton.v1 import common_pb2, inference_pb2

USAGE = Usage(1, 2, 3, 4, 5.5, 6.5)
STEPS = (
    Step("prefill", "p0", 0.25, 0.5, 7, 8, 9, "here"),
    Step("decode", "d0", 1.0, 2.0, 3, 0, 0, ""),
)
LOGPROBS = (TokenLogprob(-0.5, ((3, -0.5), (4, -1.5))), TokenLogprob(-2.0, ()))


@pytest.mark.parametrize("response", [inference_pb2.GenerateResponse, inference_pb2.ChatResponse])
@pytest.mark.parametrize(
    "event",
    [
        Started("r1", "tiny", -7, 3),
        Delta(1, 5, (3, 4), "héllo", ()),
        Delta(0, 0, (3, 4), "", LOGPROBS),
        Delta(0, 9, (), "held back", ()),
        ChoiceFinished(1, FinishReason.STOP, "END"),
        ChoiceFinished(0, FinishReason.LENGTH, ""),
        Finished(USAGE, STEPS),
        Finished(USAGE, ()),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_goes_through_its_message_unchanged(event: Event, response: type) -> None:
    message = response()
    event_to_proto(event, message)
    assert event_from_proto(response.FromString(message.SerializeToString())) == event


def test_an_event_of_a_later_release_is_no_event() -> None:
    assert event_from_proto(inference_pb2.GenerateResponse()) is None


def test_events_have_the_fields_of_their_messages() -> None:
    for struct, message in (
        (Started, inference_pb2.Started),
        (Delta, inference_pb2.Delta),
        (ChoiceFinished, inference_pb2.ChoiceFinished),
        (Finished, inference_pb2.Finished),
        (Usage, common_pb2.Usage),
        (Step, common_pb2.Step),
        (TokenLogprob, common_pb2.TokenLogprob),
    ):
        assert struct.__struct_fields__ == tuple(message.DESCRIPTOR.fields_by_name)
    reasons = {f"FINISH_REASON_{reason.name}" for reason in FinishReason}
    assert reasons == set(common_pb2.FinishReason.keys()) - {"FINISH_REASON_UNSPECIFIED"}
