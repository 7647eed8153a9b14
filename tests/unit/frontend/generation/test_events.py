"""Server-sent events: what is written is JSON, one event each, whatever the text."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton.errors import BatonError, Reason
from baton.request.stream_events import (
    ChoiceFinished,
    Delta,
    Event,
    Finished,
    FinishReason,
    Started,
    Usage,
)
from services.frontend.http.body import ClientGoneError
from services.frontend.openai.response.encoder import ChunkEncoder, WholeEncoder
from services.frontend.openai.response.options import ResponseOptions
from services.frontend.openai.response.templates import CHAT, COMPLETION
from services.frontend.openai.stream import answer_stream
from services.frontend.requests.record import begin
from services.frontend.requests.request import ResolvedRequest
from tests.support.wait import eventually

RequestFor = Callable[..., ResolvedRequest]
Texts = list[tuple[int, str]]


def options(**fields: Any) -> ResponseOptions:
    base = {"id": 'i"d', "created": 7, "model": "m", "fingerprint": "fp", "n": 2, "drawn": 2}
    return ResponseOptions(
        **{**base, "logprobs": False, "token_ids": False, "usage": True, **fields}
    )


def story(texts: Texts) -> list[Event]:
    usage = Usage(3, 2, 5, 4, 0.0, 0.0)
    reason = FinishReason.STOP
    return [
        Started("r", "m", 1, 3),
        *(Delta(choice, 0, [1], text, ()) for choice, text in texts),
        ChoiceFinished(0, reason, ""),
        ChoiceFinished(1, reason, ""),
        Finished(usage, ()),
    ]


def parse(stream: bytes) -> list[Any]:
    *events, rest = stream.decode().split("\n\n")
    assert rest == ""
    assert events.pop() == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in events]


@given(texts=st.lists(st.tuples(st.integers(0, 1), st.text(max_size=8)), max_size=8))
def test_a_stream_says_what_the_whole_answer_says(request_for: RequestFor, texts: Texts) -> None:
    requests = [request_for(n=2)]
    for template, text_of in (
        (CHAT, lambda c: c["delta"].get("content", "")),
        (COMPLETION, lambda c: c["text"]),
    ):
        chunks = ChunkEncoder(template, options(), requests)
        answer = WholeEncoder(template, options(), requests)
        stream = b""
        for event in story(texts):
            stream += chunks.take(0, event)
            answer.take(0, event)
        *events, last = parse(stream + chunks.end())
        body = answer.body()
        assert {event["id"] for event in events} == {'i"d'}
        assert last["usage"] == body["usage"]
        for index in (0, 1):
            said = "".join(text for choice, text in texts if choice == index)
            mine = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
            assert "".join(map(text_of, mine)) == said
            whole = body["choices"][index]
            assert whole.get("text", whole.get("message", {}).get("content")) == said
            assert mine[-1]["finish_reason"] == whole["finish_reason"] == "stop"


class Batch:
    """Tells what it is told to, step by step; an exception is raised, a number is a pause."""

    def __init__(self, *steps: list[Event] | float | BatonError) -> None:
        self._steps = steps
        self._sink: Any = None
        self._enough = asyncio.Event()
        self.paused = False

    def wake(self) -> None:
        self._tell([])

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def _tell(self, events: list[Event]) -> None:
        if self._sink(0, events):
            self._enough.set()

    async def run(self, sink: Any, on_enough: Any) -> None:
        self._sink = sink
        following = asyncio.create_task(self._follow(on_enough))
        try:
            for step in self._steps:
                if isinstance(step, BatonError):
                    raise step
                if isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    self._tell(step)
                    await asyncio.sleep(0.005)
        finally:
            following.cancel()

    async def _follow(self, on_enough: Any) -> None:
        while True:
            await self._enough.wait()
            self._enough.clear()
            await on_enough()


class Wire:
    """A connection that notes what is written to it."""

    def __init__(self, sent: list[Any]) -> None:
        self.on_lost: Callable[[], None] | None = None
        self.on_pause: Callable[[], None] | None = None
        self.on_resume: Callable[[], None] | None = None
        self.lost = False
        self.full = False
        self._sent = sent

    def begin(self, send: Any, start: Any, piece: bytes) -> bool:
        if self.full:
            return False
        for _ in send(start).__await__():
            pytest.fail("it waits")
        self.write_piece(piece)
        return True

    def write_piece(self, data: bytes) -> None:
        assert data
        self._sent.append(data)

    def cut(self) -> None:
        self.leave()

    def leave(self) -> None:
        self.lost = True
        if self.on_lost is not None:
            self.on_lost()


async def run(
    batch: Any, chunks: Any, leave_after: float | None = None, *, full: bool = False
) -> list[Any]:
    """What a client gets: the status, and piece by piece the body."""
    sent: list[Any] = []
    wire = Wire(sent)
    wire.full = full

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])
        else:
            assert not message["more_body"]
            sent.append(message["body"])

    if leave_after is not None:
        asyncio.get_running_loop().call_later(leave_after, wire.leave)
    await answer_stream(batch, chunks, wire, send, keep_alive_seconds=0.05)
    assert wire.on_lost is wire.on_pause is wire.on_resume is None
    return sent


async def test_silence_is_filled_with_comments(request_for: RequestFor) -> None:
    chunks = ChunkEncoder(COMPLETION, options(n=1), [request_for()])
    delta: list[Event] = [Delta(0, 0, [1], "hi", ())]
    status, *sent = await run(Batch(0.18, delta, 0.07, []), chunks)
    assert status == 200
    comments = [at for at, data in enumerate(sent) if data == b": keep-alive\n\n"]
    assert comments[:2] == [0, 1]
    assert any(b'"text":"hi"' in data for data in sent)
    assert comments[-1] > next(at for at, data in enumerate(sent) if b'"hi"' in data)
    assert sent[-1].endswith(b"data: [DONE]\n\n")


async def test_what_comes_before_an_answer_can_begin_is_its_first_piece(
    request_for: RequestFor,
) -> None:
    chunks = ChunkEncoder(COMPLETION, options(n=1), [request_for()])
    deltas: list[Event] = [Delta(0, 0, [1], "hi", ()), Delta(0, 1, [2], "you", ())]
    status, first, second, _ = await run(Batch(deltas[:1], deltas[1:]), chunks, full=True)
    assert status == 200
    assert b'"text":"hi"' in first
    assert b'"text":"you"' in second


async def test_an_error_before_the_first_event_is_an_answer(request_for: RequestFor) -> None:
    chunks = ChunkEncoder(COMPLETION, options(n=1), [request_for()])
    with pytest.raises(BatonError, match="full"):
        await run(Batch(BatonError(Reason.NO_CAPACITY, "full")), chunks)


async def test_an_error_after_it_is_the_last_event(request_for: RequestFor) -> None:
    chunks = ChunkEncoder(COMPLETION, options(n=1), [request_for()])
    delta: list[Event] = [Delta(0, 0, [1], "hi", ())]
    record, lost = begin("http"), BatonError(Reason.WORKER_LOST, "lost")
    *_, last = await run(Batch(delta, lost), chunks)
    assert record.error is lost
    assert json.loads(last.removeprefix(b"data: "))["error"]["code"] == "worker_lost"


async def test_a_client_that_leaves_ends_it(request_for: RequestFor) -> None:
    chunks = ChunkEncoder(COMPLETION, options(n=1), [request_for()])
    with pytest.raises(ClientGoneError):
        await run(Batch(3600.0), chunks, leave_after=0.02)
    with pytest.raises(ClientGoneError):
        await run(Batch([Delta(0, 0, [1], "hi", ())], 3600.0), chunks, leave_after=0.02)


async def test_a_client_that_does_not_read_holds_its_requests(request_for: RequestFor) -> None:
    chunks = ChunkEncoder(COMPLETION, options(n=1), [request_for()])
    batch: Any = Batch(0.05)
    wire = Wire([])

    async def send(message: Any) -> None:
        pass

    answering = asyncio.create_task(answer_stream(batch, chunks, wire, send, 15))
    await eventually(lambda: wire.on_resume)
    assert wire.on_pause is not None
    assert wire.on_resume is not None
    wire.on_pause()
    assert batch.paused
    wire.on_resume()
    assert not batch.paused
    await answering
