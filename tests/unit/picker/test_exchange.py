"""One exchange with a gateway, message by message, in every mode in which it sends bodies."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from baton.internal.envoy.external_processor_pb2 import ProcessingRequest, ProcessingResponse
from baton.internal.envoy.processing_mode_pb2 import ProcessingMode
from services.picker.exchange.bodies import HeldBodies
from services.picker.exchange.exchange import PickExchange
from services.picker.exchange.request import PickRequest
from services.picker.exchange.responses import MAX_PIECE_BYTES
from tests.support import ext_proc
from tests.support.ext_proc import BUFFERED, DUPLEX, NONE, STREAMED, destination, passed_on

ENDPOINTS = ("10.0.0.1:8000", "10.0.0.2:8000")
BODY = b'{"messages": [], "model": "m", "stream": true}'


class Gateway:
    """Sends messages to an exchange and keeps what was asked and answered."""

    def __init__(self, max_body: int = 1000, max_held: int = 1000, error: Any = None) -> None:
        self.bodies = HeldBodies(max_body, max_held)
        self.asked: list[PickRequest] = []
        self.served: list[str] = []
        self.error = error
        self.exchange = PickExchange(self.pick, self.bodies, self.served.append)
        self.answers: list[ProcessingResponse] = []

    async def pick(self, request: PickRequest) -> Sequence[str]:
        self.asked.append(request)
        if self.error is not None:
            raise self.error
        return ENDPOINTS

    async def send(self, *messages: ProcessingRequest) -> list[ProcessingResponse]:
        answers = [one for message in messages for one in await self.exchange.take(message)]
        self.answers += answers
        return answers


def kinds(answers: Sequence[ProcessingResponse]) -> list[str | None]:
    return [one.WhichOneof("response") for one in answers]


@pytest.mark.parametrize("mode", [DUPLEX, None])
async def test_a_streamed_body_is_read_for_its_model_and_passed_on(mode: Any) -> None:
    gateway = Gateway()
    assert await gateway.send(ext_proc.head(mode=mode), ext_proc.body(BODY[:9], end=False)) == []
    assert gateway.bodies.held_bytes == 9
    answers = await gateway.send(ext_proc.body(BODY[9:]))
    assert kinds(answers) == ["request_headers", "request_body", "request_body"]
    assert destination(answers) == ",".join(ENDPOINTS)
    assert passed_on(answers) == (BODY, True)
    assert gateway.asked == [PickRequest(model="m")]
    assert gateway.bodies.held_bytes == 0


async def test_a_buffered_body_gets_its_destination_with_the_body() -> None:
    gateway = Gateway()
    (first,) = await gateway.send(ext_proc.head(mode=BUFFERED))
    assert not first.request_headers.HasField("response")
    answers = await gateway.send(ext_proc.body(BODY))
    assert kinds(answers) == ["request_body"]
    assert destination(answers) == ",".join(ENDPOINTS)
    assert not answers[0].request_body.response.HasField("body_mutation")
    assert gateway.asked[0].model == "m"


@pytest.mark.parametrize(
    "message",
    [
        ext_proc.head(end=True),
        ext_proc.head({"content-type": "multipart/form-data"}),
        ext_proc.head(mode=STREAMED),
        ext_proc.head(mode=NONE),
        ext_proc.head({"content-type": "application/grpc"}, mode=ProcessingMode.GRPC),
    ],
)
async def test_a_head_whose_body_tells_nothing_is_answered_at_once(message: Any) -> None:
    gateway = Gateway()
    answers = await gateway.send(message)
    assert kinds(answers) == ["request_headers"]
    assert destination(answers) == ",".join(ENDPOINTS)
    assert gateway.asked == [PickRequest()]


async def test_trailers_end_a_body_too() -> None:
    gateway = Gateway()
    assert await gateway.send(ext_proc.head(), ext_proc.body(BODY, end=False)) == []
    answers = await gateway.send(ext_proc.trailers())
    assert kinds(answers) == ["request_headers", "request_body", "request_trailers"]
    assert (passed_on(answers), gateway.asked[0].model) == ((BODY, False), "m")


@pytest.mark.parametrize(("most", "total"), [(20, 1000), (1000, 20)])
async def test_a_body_beyond_the_bound_is_passed_on_unread(most: int, total: int) -> None:
    gateway = Gateway(most, total)
    assert await gateway.send(ext_proc.head(), ext_proc.body(BODY[:15], end=False)) == []
    answers = await gateway.send(ext_proc.body(BODY[15:30], end=False))
    assert kinds(answers) == ["request_headers", "request_body", "request_body"]
    assert destination(answers) == ",".join(ENDPOINTS)
    assert gateway.bodies.held_bytes == 0
    await gateway.send(ext_proc.body(BODY[30:]))
    assert passed_on(gateway.answers) == (BODY, True)
    assert gateway.asked == [PickRequest()]


async def test_large_pieces_are_cut_as_envoy_recommends() -> None:
    gateway = Gateway(0)
    data = bytes(2 * MAX_PIECE_BYTES + 1)
    answers = await gateway.send(ext_proc.head(), ext_proc.body(data))
    assert passed_on(answers) == (data, True)
    assert len(answers) == 1 + 3


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"model": 3}', b"\xff\xfe", b'{"a": 1}'])
async def test_a_body_that_names_no_model_is_the_frontends_to_reject(data: bytes) -> None:
    gateway = Gateway()
    answers = await gateway.send(ext_proc.head(), ext_proc.body(data))
    assert (passed_on(answers), gateway.asked) == ((data, True), [PickRequest()])


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (None, None),
        ([], frozenset()),
        (
            ["10.0.0.1:8000", "10.0.0.2:8000, 10.0.0.3"],
            {"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3"},
        ),
        ("10.0.0.1:8000,10.0.0.2:8000", {"10.0.0.1:8000", "10.0.0.2:8000"}),
    ],
)
async def test_subsets_and_objectives_are_read(hint: Any, expected: Any) -> None:
    gateway = Gateway()
    headers = {"x-gateway-inference-objective": "sheddable"}
    await gateway.send(ext_proc.head(headers, end=True, subset=hint))
    assert gateway.asked == [PickRequest(objective="sheddable", subset=expected)]


async def test_a_rejected_request_is_answered_by_the_gateway() -> None:
    error = BatonError(Reason.NO_CAPACITY, "the queue is full", retry_after=2.4)
    gateway = Gateway(error=error)
    (answer,) = await gateway.send(ext_proc.head(), ext_proc.body(BODY))
    immediate = answer.immediate_response
    headers = {one.header.key: one.header.raw_value for one in immediate.headers.set_headers}
    assert immediate.status.code == 429
    assert headers == {
        "content-type": b"application/json",
        "retry-after": b"2",
        "retry-after-ms": b"2400",
    }
    assert b'"code":"no_capacity"' in immediate.body
    assert gateway.exchange.rejected
    assert gateway.bodies.held_bytes == 0


async def test_a_response_goes_through_unchanged() -> None:
    gateway = Gateway()
    await gateway.send(ext_proc.head(end=True))
    parts = [
        ext_proc.response_head(served=ENDPOINTS[1]),
        ext_proc.response_body(b"data: 1"),
        ext_proc.response_trailers(),
    ]
    answers = await gateway.send(*parts)
    assert kinds(answers) == ["response_headers", "response_body", "response_trailers"]
    streamed = answers[1].response_body.response.body_mutation.streamed_response
    assert (streamed.body, streamed.end_of_stream) == (b"data: 1", False)
    assert gateway.served == [ENDPOINTS[1]]


async def test_an_observer_gets_no_answers() -> None:
    gateway = Gateway()
    message = ext_proc.head(end=True)
    message.observability_mode = True
    assert await gateway.send(message) == []


@given(st.data())
async def test_any_legal_order_of_messages_gets_legal_answers(data: st.DataObject) -> None:
    mode = data.draw(st.sampled_from([*ProcessingMode.BodySendMode.values(), None]))
    chunks = data.draw(st.lists(st.binary(max_size=40), max_size=5)) if mode != NONE else []
    if mode in (BUFFERED, ProcessingMode.BUFFERED_PARTIAL):
        chunks = chunks[:1]
    has_trailers = bool(chunks) and data.draw(st.booleans())
    json = data.draw(st.booleans())
    gateway = Gateway(max_body=data.draw(st.integers(0, 100)))
    headers = ext_proc.JSON if json else {}
    messages = [ext_proc.head(headers, end=not chunks, mode=mode)]
    for at, chunk in enumerate(chunks):
        messages.append(ext_proc.body(chunk, end=at == len(chunks) - 1 and not has_trailers))
    messages += [ext_proc.trailers()] if has_trailers else []
    messages += [ext_proc.response_head(), ext_proc.response_body(b"x", end=True)]
    duplex = mode in (DUPLEX, ProcessingMode.GRPC, None)
    for message in messages:
        answers = await gateway.send(message)
        if not duplex:  # exactly one answer, of the same part
            assert kinds(answers) == [message.WhichOneof("request")]
    request = [one for one in gateway.answers if "request_" in str(one.WhichOneof("response"))]
    assert destination(request) == ",".join(ENDPOINTS)
    order = ["request_headers", "request_body", "request_trailers"]
    found = [order.index(kind) for kind in kinds(request) if kind]
    assert found == sorted(found)
    if duplex and chunks:
        assert passed_on(gateway.answers) == (b"".join(chunks), not has_trailers)
    assert kinds(gateway.answers)[-2:] == ["response_headers", "response_body"]
    assert len(gateway.asked) == 1
    assert gateway.bodies.held_bytes == 0
