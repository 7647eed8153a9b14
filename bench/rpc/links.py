"""What a link between two processes costs per message: `python -m bench.rpc.links`.

A worker's side sends one message per engine step with the tokens of all streams, a frontend's side
reads every token of it; each is a process of its own. Prints the CPU that a message costs either,
of all their threads, and how often the receiver was woken. `grpc.aio` is what both sides were
before, `Baton` what they are, and `raw TCP` the same messages behind a length on a socket: the
floor. Entries are the messages of protocol version 1, columns those of version 2.
"""

import argparse
import asyncio
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import uvloop

from baton.engine.events import SampledTokens
from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.rpc.channel.channel import Channel
from baton.rpc.server.server import Server
from baton.rpc.streams.client import ClientStream
from baton.rpc.streams.send_queue import SendQueue
from baton.rpc.streams.server import ServerStream
from baton.settings import GrpcSettings
from baton.telemetry import logs
from baton.worker.wire.step_tokens import StepTokens, tokens_of
from bench.harness import cli
from bench.harness.child import helper
from bench.harness.table import Table

VARIANTS = {
    # name: (how it travels, version of the protocol)
    "grpc.aio, entries": ("aio", 1),
    "grpc.aio, columns": ("aio", 2),
    "Baton, columns": ("baton", 2),
    "raw TCP, entries": ("raw", 1),
    "raw TCP, columns": ("raw", 2),
}
HEAD_BYTES = 4
WARM_UP_SECONDS = 1.0

Frame = worker_pb2.FrameFromWorker
Send = Callable[[Frame], Awaitable[None] | None]


def step(tokens: int, position: int, version: int) -> Frame:
    """Return the frame of an engine step."""
    made = StepTokens()
    for stream in range(1, tokens + 1):
        made.add(stream, SampledTokens(stream, 0, position, ((stream * 97 + position) % 8000,)))
    return made.frame(version)


def pack(frames: deque[Frame]) -> worker_pb2.RunResponse:
    """Return a message of all frames that wait."""
    message = worker_pb2.RunResponse(frames=frames)
    frames.clear()
    return message


# The sender's process.


async def steps(send: Send, pace: float, tokens: int, version: int) -> None:
    """Send a step at each tick, for ever."""
    position, due = 0, time.monotonic()
    while True:
        sent = send(step(tokens, position, version))
        if sent is not None:
            await sent
        position, due = position + 1, max(due + pace, time.monotonic())
        await asyncio.sleep(due - time.monotonic())


class Worker(worker_pb2_grpc.WorkerServiceServicer):
    """Sends steps on every Run."""

    def __init__(self, run: Callable[[Send], Awaitable[None]]) -> None:
        self._run = run


class AioWorker(Worker):
    async def Run(self, _: AsyncIterator[Any], context: Any) -> None:  # type: ignore[override]  # noqa: N802
        await self._run(lambda frame: context.write(worker_pb2.RunResponse(frames=[frame])))


class BatonWorker(Worker):
    async def Run(self, _: AsyncIterator[Any], context: Any) -> None:  # type: ignore[override]  # noqa: N802
        queue: SendQueue[Frame, worker_pb2.RunResponse] = SendQueue(pack)

        def send(frame: Frame) -> None:
            queue.put(frame)

        sending = asyncio.ensure_future(self._run(send))
        try:
            await ServerStream(queue, lambda _: None, lambda: None).serve(context)
        finally:
            sending.cancel()


class RawWorker(asyncio.Protocol):
    """Sends steps to who connects."""

    def __init__(self, run: Callable[[Send], Awaitable[None]]) -> None:
        self._run = run

    def connection_made(self, transport: Any) -> None:
        def send(frame: Frame) -> None:
            data = worker_pb2.RunResponse(frames=[frame]).SerializeToString()
            transport.write(len(data).to_bytes(HEAD_BYTES) + data)

        self._sending = asyncio.ensure_future(self._run(send))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._sending.cancel()


async def serve(how: str, version: int, pace: float, tokens: int) -> None:
    """Serve until standard input ends; prints the port, and CPU seconds for each line read."""

    def run(send: Send) -> Awaitable[None]:
        return steps(send, pace, tokens, version)

    every: Any = AioWorker if how == "aio" else BatonWorker  # without the methods it never calls
    if how == "aio":
        server = grpc.aio.server()
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(every(run), server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
    elif how == "baton":
        logs.configure("bench", "bench", "warning")
        own = Server(GrpcSettings(port=0), "bench")
        worker = every(run)
        own.add(
            lambda to: worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, to),
            "baton.internal.v1.WorkerService",
        )
        await own.start()
        port = int(own.address.rpartition(":")[2])
    else:
        loop = asyncio.get_running_loop()
        raw = await loop.create_server(lambda: RawWorker(run), "127.0.0.1", 0)
        port = raw.sockets[0].getsockname()[1]
    print(port, flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(time.process_time(), flush=True)
    os._exit(0)  # there is nothing to give back


# The receiver's, which is this one.


class Receiver:
    """Reads messages, each token of them."""

    def __init__(self) -> None:
        self.messages = 0
        self.tokens = 0

    def take(self, message: worker_pb2.RunResponse) -> None:
        self.messages += 1
        for frame in message.frames:
            for _, _, _, token_ids, _ in tokens_of(frame.step):
                self.tokens += len(token_ids)

    async def follow(self, how: str, port: int) -> Callable[[], Awaitable[None]]:
        """Connect, and take messages until what is returned is called."""
        address = f"127.0.0.1:{port}"
        if how == "raw":
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_connection(
                lambda: RawReader(self.take), "127.0.0.1", port
            )

            async def close_raw() -> None:
                transport.close()

            return close_raw
        if how == "baton":
            channel = Channel(address)
            stub = channel.stub(worker_pb2_grpc.WorkerServiceStub)
            stream: ClientStream[Any, worker_pb2.RunResponse] = ClientStream(
                stub.Run(), SendQueue()
            )
            stream.start_reader(self.take, lambda _: None)

            async def close_own() -> None:
                stream.close()
                await channel.close()

            return close_own
        aio = grpc.aio.insecure_channel(address)
        call: Any = worker_pb2_grpc.WorkerServiceStub(aio).Run()  # type: ignore[call-arg]  # the stub wants an iterator
        reading = asyncio.ensure_future(self._read(call))

        async def close_aio() -> None:
            reading.cancel()
            await aio.close(None)

        return close_aio

    async def _read(self, call: Any) -> None:
        while (message := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
            self.take(message)


class RawReader(asyncio.Protocol):
    """Cuts bytes into messages."""

    def __init__(self, take: Callable[[worker_pb2.RunResponse], None]) -> None:
        self._take = take
        self._buffer = b""

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= HEAD_BYTES:
            end = HEAD_BYTES + int.from_bytes(self._buffer[:HEAD_BYTES])
            if len(self._buffer) < end:
                return
            self._take(worker_pb2.RunResponse.FromString(self._buffer[HEAD_BYTES:end]))
            self._buffer = self._buffer[end:]


def switches() -> int:
    """Return how often threads of this process have waited."""
    total = 0
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        for line in (task / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                total += int(line.split()[1])
    return total


async def cost(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return what a message costs, in µs of CPU."""
    how, version = VARIANTS[name]
    pace = options.pace_ms / 1e3
    arguments = ("serve", how, str(version), str(pace), str(options.tokens))
    async with helper("bench.rpc.links", *arguments) as sender:
        receiver = Receiver()
        close = await receiver.follow(how, int(await sender.receive()))
        await asyncio.sleep(WARM_UP_SECONDS)
        sent = float(await sender.ask(""))
        began, count, woken = time.process_time(), receiver.messages, switches()
        await asyncio.sleep(options.seconds)
        count = receiver.messages - count
        received, woken = time.process_time() - began, switches() - woken
        sent = float(await sender.ask("")) - sent
        await close()
    if not count or receiver.tokens != receiver.messages * options.tokens:
        raise RuntimeError("not every token came")
    return {
        "link": name,
        "messages_per_second": count / options.seconds,
        "sender_us": sent / count * 1e6,
        "receiver_us": received / count * 1e6,
        "wakes": woken / count,
    }


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    table = Table(
        ("link", "<20"),
        ("messages/s", "11.0f"),
        ("sender us", "10.0f"),
        ("receiver us", "12.0f"),
        ("wakes/message", "14.1f"),
    )
    found = []
    for _ in range(options.rounds):
        for name in VARIANTS:
            found.append(await cost(name, options))
            table.row(*found[-1].values())
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pace-ms", type=float, default=6.0, help="between two messages")
    parser.add_argument("--tokens", type=int, default=64, help="in a message")
    parser.add_argument("--seconds", type=float, default=4.0, help="how long each is measured")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        uvloop.run(serve(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5])))
    else:
        cli.main(measure, __doc__, arguments, rounds=2, smallest="--rounds 1 --seconds 0.5")
