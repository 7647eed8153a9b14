"""Long-lived calls over a real socket: order, bounds, who is told why a stream ended, and when."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from baton.errors import BatonError, Reason
from baton.rpc.channel.call import ClientCall
from baton.rpc.channel.channel import Channel
from baton.rpc.server.server import Server
from baton.rpc.streams.client import ClientStream, receive
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.streams.server import ServerStream
from baton.rpc.transport.inbox import END
from baton.settings import GrpcSettings
from tests.support.wait import wait_for

Handler = Callable[[AsyncIterator[bytes], Any], Awaitable[None]]


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[Callable[[], ClientCall]]:
    """A server whose one method is `handler`; yields what opens a call of it."""

    def register(server: Any) -> None:
        methods = {"M": grpc.stream_stream_rpc_method_handler(handler)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("S", methods),))

    async with Server(GrpcSettings(), "test") as server:
        server.add(register, "S")
        await server.start()
        async with Channel(server.address) as channel:
            yield channel.stream_stream("/S/M", bytes, bytes)


async def echo(requests: AsyncIterator[bytes], context: Any) -> None:
    async for request in requests:
        await context.write(request)


def joined(frames: deque[bytes]) -> bytes:
    """All frames that wait, as one message."""
    message = b",".join(frames)
    frames.clear()
    return message


async def test_frames_that_wait_travel_together_and_in_order() -> None:
    async with serving(echo) as call:
        stream: ClientStream[bytes, bytes] = ClientStream(call(), SendQueue(joined))
        for number in range(5):
            stream.send(b"%d" % number)
        assert await stream.read() == b"0,1,2,3,4"
        stream.send(b"5")
        assert await stream.read() == b"5"
        stream.close()
        with pytest.raises(BatonError) as caught:
            await stream.read()
        assert caught.value.reason is Reason.CANCELLED


async def test_a_reader_is_told_once_why_the_stream_closed() -> None:
    async def refuse(requests: AsyncIterator[bytes], context: Any) -> None:
        await context.write(await anext(requests))
        raise BatonError(Reason.DRAINING, "this server is stopping")

    async with serving(refuse) as call:
        got: list[bytes] = []
        closed = asyncio.get_running_loop().create_future()
        stream: ClientStream[bytes, bytes] = ClientStream(call(), SendQueue())
        stream.start_reader(got.append, closed.set_result)
        stream.send(b"hello")
        error = await closed
        await stream.wait_closed()
    assert got == [b"hello"]
    assert error.reason is Reason.DRAINING
    assert stream.closed


async def test_a_handler_of_messages_that_raises_closes_the_stream() -> None:
    def fails(_: bytes) -> None:
        raise ValueError("not understood")

    async with serving(echo) as call:
        closed = asyncio.get_running_loop().create_future()
        stream: ClientStream[bytes, bytes] = ClientStream(call(), SendQueue())
        stream.start_reader(fails, closed.set_result)
        stream.send(b"x")
        assert (await closed).reason is Reason.INTERNAL
        await stream.wait_closed()


async def test_a_server_that_does_not_read_fills_the_queue_and_closes_the_stream() -> None:
    async def deaf(requests: AsyncIterator[bytes], context: Any) -> None:
        await asyncio.Event().wait()

    async with serving(deaf) as call:
        closed = asyncio.get_running_loop().create_future()
        stream: ClientStream[bytes, bytes] = ClientStream(call(), SendQueue(limit=4))
        stream.start_reader(lambda _: None, closed.set_result)
        for _ in range(5):
            stream.send(b"x")
        assert not stream.closed  # not amid the caller's work
        assert (await closed).reason is Reason.SLOW_CONSUMER
        await stream.wait_closed()


async def test_a_message_that_is_not_taken_in_time_closes_the_stream() -> None:
    async def deaf(requests: AsyncIterator[bytes], context: Any) -> None:
        await asyncio.Event().wait()

    async with serving(deaf) as call:
        closed = asyncio.get_running_loop().create_future()
        queue: SendQueue[bytes, bytes] = SendQueue()
        stream: ClientStream[bytes, bytes] = ClientStream(call(), queue, write_seconds=0.2)
        stream.start_reader(lambda _: None, closed.set_result)
        for _ in range(16):
            await stream.send_bulk(bytes(1024 * 1024))
        assert (await closed).reason is Reason.SLOW_CONSUMER


async def test_receive_says_why_there_are_no_more_messages() -> None:
    async def two(requests: AsyncIterator[bytes], context: Any) -> None:
        await context.write(b"a")
        await context.write(b"b")
        if await anext(requests) == b"stay":
            await asyncio.Event().wait()

    async with serving(two) as call:
        for request, reason in ((b"go", Reason.UNAVAILABLE), (b"stay", Reason.DEADLINE)):
            opened = call()
            opened.send(request)
            got = []
            with pytest.raises(BatonError) as caught:
                async for message in receive(opened, idle_seconds=0.3):
                    got.append(message)
            assert got == [b"a", b"b"]
            assert caught.value.reason is reason
            assert opened.ended


class Echo:
    """A ServerStream that answers requests with themselves or one answer, and counts its ends."""

    def __init__(self, **options: Any) -> None:
        self.closed = 0
        self.served = asyncio.Event()
        self.answer: bytes | None = options.pop("answer", None)
        self.queue: SendQueue[bytes, bytes] = SendQueue(limit=options.pop("limit", 8192))
        self.stream: ServerStream[bytes] = ServerStream(
            self.queue, self.handle, self.close, **options
        )

    def handle(self, request: bytes) -> None:
        if request == b"bad":
            raise BatonError(Reason.INVALID_FIELD, "bad", field="it")
        for _ in range(int(request.partition(b" ")[2] or 1)):
            self.queue.put(self.answer or request)

    def close(self) -> None:
        self.closed += 1

    async def __call__(self, requests: AsyncIterator[bytes], context: Any) -> None:
        try:
            await self.stream.serve(context)
        finally:
            self.served.set()


async def test_answers_that_wait_are_sent_after_the_client_has_ended_its_side() -> None:
    server = Echo(linger_seconds=5)
    async with serving(server) as call:
        opened = call()
        for number in range(100):
            opened.send(b"%d" % number)
        opened.half_close()
        got = []
        while (message := await opened.read()) is not END:
            got.append(message)
        assert got == [b"%d" % number for number in range(100)]
        await server.served.wait()
    assert server.closed == 1


async def test_what_a_handler_raises_ends_the_call() -> None:
    server = Echo()
    async with serving(server) as call:
        stream: ClientStream[bytes, bytes] = ClientStream(call(), SendQueue())
        stream.send(b"bad")
        with pytest.raises(BatonError) as caught:
            await stream.read()
        stream.close()
        await server.served.wait()
    assert (caught.value.reason, server.closed) == (Reason.INVALID_FIELD, 1)


async def test_a_client_that_leaves_closes_the_stream() -> None:
    server = Echo(linger_seconds=5)
    async with serving(server) as call:
        stream: ClientStream[bytes, bytes] = ClientStream(call(), SendQueue())
        stream.send(b"x")
        assert await stream.read() == b"x"
        stream.close()
        await server.served.wait()
    assert server.closed == 1


async def test_a_client_that_does_not_read_is_cut_though_a_write_is_stuck() -> None:
    server = Echo(limit=24, answer=bytes(1024 * 1024))
    async with serving(server) as call:
        opened = call()
        opened.send(b"x 24")  # more than gRPC takes into its own buffers
        await asyncio.sleep(0.1)
        opened.send(b"x 24")
        await wait_for(server.served.wait())
        with pytest.raises(BatonError) as caught:
            while await opened.read() is not END:
                pass
        assert caught.value.reason is Reason.SLOW_CONSUMER
    assert server.closed == 1


async def test_reading_pauses_until_answers_are_read_or_the_client_is_cut() -> None:
    server = Echo(pause_at=4, stall_seconds=0.3)
    async with serving(server) as call:
        opened = call()
        filler = bytes(64 * 1024)
        for _ in range(64):
            opened.send(filler)
        for _ in range(64):  # slower than they were sent, and none is lost
            assert await opened.read() == filler
        opened.send(filler + b" 200")  # 13 MB of answers that are not read
        await wait_for(server.served.wait())
        opened.cancel()
    assert server.queue.error is not None
    assert server.closed == 1


async def test_draining_sends_what_is_answered_and_handles_nothing_more() -> None:
    server = Echo()
    async with serving(server) as call:
        stream: ClientStream[bytes, bytes] = ClientStream(call(), SendQueue())
        stream.send(b"1")
        assert await stream.read() == b"1"
        server.queue.put(b"2")
        server.stream.drain(BatonError(Reason.DRAINING, "this server is stopping"), 5)
        stream.send(b"3")
        assert await stream.read() == b"2"
        with pytest.raises(BatonError) as caught:
            await stream.read()
        stream.close()
        await server.served.wait()
    assert (caught.value.reason, server.closed) == (Reason.DRAINING, 1)
