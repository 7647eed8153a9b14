"""What a session of the client sends, and where what it receives goes; without a network."""

import pytest

from baton.client.errors import BatonClientError, ProtocolError
from baton.client.session.requests import SessionRequests
from baton.errors import BatonError, Reason
from baton.request.stream_events import Delta, Event
from baton.v1 import inference_pb2

Response = inference_pb2.SessionResponse
SessionEvent = inference_pb2.SessionEvent


class Received:
    """Keeps what a request is told."""

    request_id = "r"

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.errors: list[Exception] = []

    def push(self, delta: Delta) -> None:
        self.events.append(delta)

    def take(self, event: Event) -> None:
        self.events.append(event)

    def fail(self, error: BatonError) -> None:
        self.errors.append(error)

    def end(self, error: BatonClientError) -> None:
        self.errors.append(error)

    def fall_back(self) -> None:
        raise AssertionError("nothing asks for it")


def begin(requests: SessionRequests, text: str = "x") -> tuple[int, Received]:
    received = Received()
    return requests.start(inference_pb2.GenerateRequest(text=text), 2.5, received), received


def test_what_begins_in_one_turn_is_one_message() -> None:
    requests = SessionRequests()
    (first, _), (second, _) = begin(requests), begin(requests)
    chat = inference_pb2.ChatRequest(messages=[inference_pb2.ChatMessage(role="user")])
    third = requests.start(chat, 1.0, Received())
    assert requests.cancel(second)
    message = requests.to_send()
    assert message is not None
    assert [start.id for start in message.starts] == [first, second, third]
    assert [start.WhichOneof("request") for start in message.starts] == ["generate"] * 2 + ["chat"]
    assert message.starts[0].timeout_seconds == 2.5
    assert list(message.cancels) == [second]
    assert requests.to_send() is None


def test_long_requests_are_messages_of_their_own_and_cancels_come_last() -> None:
    requests = SessionRequests()
    ids = [begin(requests, "x" * 150_000)[0] for _ in range(3)]
    requests.cancel(ids[2])
    messages = []
    while (message := requests.to_send()) is not None:
        messages.append(message)
    assert [[start.id for start in message.starts] for message in messages] == [[n] for n in ids]
    assert [list(message.cancels) for message in messages] == [[], [], [ids[2]]]


def test_columns_go_to_their_requests() -> None:
    requests = SessionRequests()
    (first, one), (second, two) = begin(requests), begin(requests)
    plain = inference_pb2.DeltaColumns(
        ids=[first, second, 99], positions=[0, 4, 0], token_ids=[7, 8, 9], texts=["a", "b", "c"]
    )
    requests.receive(Response(deltas=plain))
    full = inference_pb2.DeltaColumns(
        ids=[second, first],
        choices=[1, 0],
        positions=[0, 1],
        token_counts=[2, 0],
        token_ids=[5, 6],
        texts=["de", "f"],
    )
    requests.receive(Response(deltas=full))
    assert one.events == [Delta(0, 0, (7,), "a", ()), Delta(0, 1, (), "f", ())]
    assert two.events == [Delta(0, 4, (8,), "b", ()), Delta(1, 0, (5, 6), "de", ())]


@pytest.mark.parametrize("more", [{}, {"token_counts": [1, 1]}])
def test_columns_that_do_not_fit_are_refused(more: dict[str, list[int]]) -> None:
    columns = inference_pb2.DeltaColumns(ids=[1, 2], positions=[0], token_ids=[3, 4], **more)
    columns.texts.extend(["a", "b"])
    requests = SessionRequests()
    with pytest.raises(ProtocolError):
        requests.receive(Response(deltas=columns))


def test_a_request_takes_room_until_the_frontend_has_ended_it() -> None:
    requests = SessionRequests()
    requests.receive(Response(limits=inference_pb2.SessionLimits(max_requests=2)))
    (first, one), (second, two) = begin(requests), begin(requests)
    assert requests.full
    assert requests.cancel(first)
    assert not requests.cancel(first)
    assert requests.full
    cancelled = BatonError(Reason.CANCELLED, "no more").to_status()
    requests.receive(Response(events=[SessionEvent(id=first, error=cancelled)]))
    assert not requests.full
    assert not one.errors  # its client has gone
    finished = SessionEvent(id=second, finished=inference_pb2.Finished())
    requests.receive(Response(events=[finished]))
    assert len(two.events) == 1
    assert len(requests) == 0


def test_errors_reach_their_request_with_their_details() -> None:
    requests = SessionRequests()
    (first, one), (_, two) = begin(requests), begin(requests)
    error = BatonError(Reason.OVERLOADED, "full", retry_after=2.0)
    requests.receive(Response(events=[SessionEvent(id=first, error=error.to_status())]))
    (received,) = one.errors
    assert isinstance(received, BatonError)
    assert (received.reason, received.retry_after) == (Reason.OVERLOADED, 2.0)
    assert not two.errors
    assert requests.close() == [two]
