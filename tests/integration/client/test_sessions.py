"""When the client uses sessions, and what it does where it cannot."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import propagate, trace
from opentelemetry.trace import SpanContext, TraceFlags

from baton.client import AsyncClient, Client, ConflictError, ConnectionFailedError, Started
from baton.client.session import aio, pool, threads
from baton.errors import BatonError, Reason
from tests.integration.client.test_clients import delta, ending, started, whole
from tests.support.clock import DEADLINE_SECONDS
from tests.support.wait import eventually_blocking, wait_for


async def answers(client: AsyncClient, count: int, **options: Any) -> list[str]:
    """The texts of answers that are asked for at once."""
    streams = [client.generate("once", model="tiny", **options) for _ in range(count)]
    return [answer.text for answer in await asyncio.gather(*(s.answer() for s in streams))]


async def test_many_streams_share_a_session(serve: Any) -> None:
    frontend, address = serve(whole())
    async with AsyncClient(address) as client:
        assert await answers(client, 1) == ["ab"]
        assert frontend.sessions == 0
        assert await answers(client, 8) == ["ab"] * 8
        assert frontend.sessions == 1
        assert await answers(client, 8) == ["ab"] * 8
        assert frontend.sessions == 1  # it is kept


async def test_a_second_session_takes_what_the_first_has_no_room_for(serve: Any) -> None:
    frontend, address = serve(whole())
    async with AsyncClient(address) as client:
        assert await answers(client, 8) == ["ab"] * 8
        assert await answers(client, 100) == ["ab"] * 100
    assert frontend.sessions == 2
    assert frontend.refusals == 0


async def test_what_a_session_turns_out_to_have_no_room_for_is_asked_by_calls(serve: Any) -> None:
    hold = threading.Event()
    frontend, address = serve([lambda: hold.wait(20) and None, *whole()])
    frontend.room = 4
    async with AsyncClient(address, retries=0) as client:
        asking = asyncio.create_task(answers(client, 12))
        try:
            while frontend.refusals < 6:  # two calls, four on the session
                await asyncio.sleep(0.01)
        finally:
            hold.set()
        assert await asking == ["ab"] * 12
    assert frontend.sessions == 1


async def test_a_frontend_without_sessions_is_asked_by_calls(serve: Any) -> None:
    frontend, address = serve(whole())
    frontend.knows_sessions = False
    async with AsyncClient(address) as client:
        assert await answers(client, 8) == ["ab"] * 8
        assert await answers(client, 8) == ["ab"] * 8
    # A refusal that comes while grpc.aio writes looks like a lost connection: it is tried again.
    assert frontend.sessions in (1, 2)
    assert len(frontend.requests) == 16
    ids = [request.context.request_id for request in frontend.requests]
    assert len(set(ids)) == 16
    assert all(0 < timeout < 601 for timeout in frontend.timeouts)


async def test_a_long_request_has_a_call_of_its_own(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    frontend, address = serve(whole())
    async with AsyncClient(address) as client:
        stream = client.generate("x" * 100_000, model="tiny")
        assert (await stream.answer()).text == "ab"
    assert frontend.sessions == 0


async def test_a_stream_that_is_not_read_is_cut_and_others_go_on(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    monkeypatch.setattr(aio, "MAX_UNREAD", 50)
    frontend, address = serve([started(), *(delta(n, 5, "x") for n in range(200)), *ending()])
    async with AsyncClient(address) as client:
        unread = client.generate("once", model="tiny")
        assert isinstance(await anext(unread), Started)
        while len(frontend.requests) < 1:
            await asyncio.sleep(0.01)
        other = client.generate("once", model="tiny")
        count = 0
        async for _ in other:
            count += 1
        assert count == 203
        with pytest.raises(ConflictError, match="was not read"):
            async for _ in unread:
                pass
        assert 1 <= len(unread.token_ids) <= 51


async def test_a_closed_client_ends_what_reads_on_its_sessions(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    forever = threading.Event()
    frontend, address = serve([started(), lambda: forever.wait(20) and None])
    client = AsyncClient(address)
    reading = asyncio.create_task(client.generate("once", model="tiny").answer())
    try:
        assert await asyncio.to_thread(frontend.began.acquire, timeout=DEADLINE_SECONDS)
        await client.close()
        with pytest.raises(Exception, match="the client is closed"):
            await wait_for(reading)
    finally:
        forever.set()


async def test_a_frontend_that_drains_gets_nothing_new(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    frontend, address = serve([BatonError(Reason.DRAINING, "going")], whole())
    async with AsyncClient(address) as client:
        assert await answers(client, 1) == ["ab"]
    assert frontend.sessions == 2
    assert len(frontend.requests) == 2


async def test_a_session_that_is_to_retire_gets_nothing_new_and_goes_on(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    hold = threading.Event()
    frontend, address = serve([started(), lambda: hold.wait(20) and None, *whole()[1:]], whole())
    frontend.retired = True
    async with AsyncClient(address, retries=0) as client:
        stream = client.generate("once", model="tiny")
        try:
            assert isinstance(await anext(stream), Started)
            assert await answers(client, 1) == ["ab"]
            assert frontend.sessions == 2
        finally:
            hold.set()
        assert (await stream.answer()).text == "ab"


def test_threads_leave_a_session_that_is_to_retire(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    frontend, address = serve(whole())
    frontend.retired = True
    with Client(address, retries=0) as client:
        for _ in range(2):
            assert client.generate("once", model="tiny").answer().text == "ab"
    assert frontend.sessions == 2


async def test_a_request_belongs_to_the_trace_that_it_began_in(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    frontend, address = serve(whole())
    async with AsyncClient(address) as client:
        for number in (1, 2):
            span = SpanContext(number, number, is_remote=False, trace_flags=TraceFlags(1))
            with trace.use_span(trace.NonRecordingSpan(span)):
                assert await answers(client, 1) == ["ab"]
        assert await answers(client, 1) == ["ab"]
    assert propagate.get_global_textmap()  # loaded, as instrumentation of a client has it
    carried = [one["traceparent"] for one in frontend.metadata]
    assert carried == [f"00-{1:032x}-{1:016x}-01", f"00-{2:032x}-{2:016x}-01", ""]


async def test_an_idle_session_is_closed(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    monkeypatch.setattr(aio, "IDLE_SECONDS", 0.05)
    frontend, address = serve(whole())
    async with AsyncClient(address) as client:
        assert await answers(client, 2) == ["ab"] * 2
        assert frontend.sessions == 1
        await asyncio.sleep(0.3)
        assert await answers(client, 1) == ["ab"]
        assert frontend.sessions == 2


async def test_a_lost_frontend_fails_every_stream(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    forever = threading.Event()
    frontend, address = serve([started(), delta(0, 5, "a"), lambda: forever.wait(20) and None])
    async with AsyncClient(address) as client:
        streams = [client.generate("once", model="tiny") for _ in range(3)]
        for stream in streams:
            await anext(stream)
            await anext(stream)
        await asyncio.to_thread(frontend.stop)
        forever.set()
        for stream in streams:
            with pytest.raises(ConnectionFailedError):
                await stream.answer()
            assert stream.text == "a"


def blocking_answers(client: Client, count: int) -> list[str]:
    """The texts of answers that threads ask for at once."""

    def ask(_: int) -> str:
        return client.generate("once", model="tiny").answer().text

    with ThreadPoolExecutor(count) as pool_of_threads:
        return list(pool_of_threads.map(ask, range(count)))


def test_threads_share_a_session(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    frontend, address = serve(whole())
    with Client(address) as client:
        assert blocking_answers(client, 8) == ["ab"] * 8
        assert blocking_answers(client, 8) == ["ab"] * 8
        assert frontend.sessions == 1
        assert blocking_answers(client, 100) == ["ab"] * 100
    assert 1 <= frontend.sessions <= 2


def test_threads_use_calls_where_there_are_no_sessions(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    frontend, address = serve(whole())
    frontend.knows_sessions = False
    with Client(address, retries=0) as client:
        assert blocking_answers(client, 8) == ["ab"] * 8
        asked = frontend.sessions
        assert blocking_answers(client, 8) == ["ab"] * 8
    assert frontend.sessions == asked
    assert len(frontend.requests) == 16


def test_a_stream_that_its_thread_does_not_read_is_cut(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    monkeypatch.setattr(threads, "MAX_UNREAD", 50)
    _, address = serve([started(), *(delta(n, 5, "x") for n in range(200)), *ending()])
    with Client(address) as client, client.generate("once", model="tiny") as stream:
        assert isinstance(next(stream), Started)
        eventually_blocking(lambda: stream._call._events.qsize() > 50, 5.0)  # type: ignore[union-attr]
        with pytest.raises(ConflictError, match="was not read"):
            for _ in stream:
                pass
        assert stream.text.startswith("x")


def test_a_session_that_no_thread_uses_is_closed(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "MANY", 0)
    monkeypatch.setattr(threads, "IDLE_SECONDS", 0.05)
    frontend, address = serve(whole())
    with Client(address) as client:
        assert blocking_answers(client, 2) == ["ab"] * 2
        eventually_blocking(lambda: not client._streams._sessions, 5.0)
        assert blocking_answers(client, 1) == ["ab"]
        assert frontend.sessions == 2
