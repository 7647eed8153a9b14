"""A frontend's side of WorkerService.Run, for tests."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import pytest

from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.internal.v1 import worker_pb2, worker_pb2_grpc
from baton.internal.v1.protocol_pb2 import Hello
from baton.kv.keys import chain_root
from baton.rpc.channels import open_channel
from baton.rpc.protocol import VERSION
from baton.settings import EngineSettings
from baton.worker.convert import sequence_request
from baton.worker.wire.step_tokens import tokens_of
from tests.support.clock import DEADLINE_SECONDS, within

MIB = 1024 * 1024
SIM = {
    "engine.kind": "sim",
    "engine.kv_bytes": 4 * MIB,
    "engine.chunk_tokens": 64,
    "kv.store_id": "store",
    "kv.connect_seconds": 30,
    "store.arena_bytes": 16 * MIB,
}
ALONE = {**SIM, "kv.connect_seconds": 0}
"""For a worker whose store is not there: it does not wait for it."""


class Run:
    """One Run stream: frames out by method, frames in sorted by stream_id."""

    def __init__(self, address: str, version: int = VERSION) -> None:
        self.channel = open_channel(address)
        stub = worker_pb2_grpc.WorkerServiceStub(self.channel)
        self.stub = stub
        self._call = stub.Run()
        self._greeting = [worker_pb2.FrameToWorker(hello=Hello(protocol_version=version))]
        self.steps: list[worker_pb2.EngineStep] = []
        self.tokens: dict[int, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self.bases: dict[tuple[int, int], int] = {}
        self.prepared: dict[int, worker_pb2.Prepared] = {}
        self.ends: dict[int, Any] = {}
        """StreamFinished, StreamFailed or StreamHandedOver."""
        self.messages = 0
        self.begun: list[int] = []
        """Streams that were suspect, in the order in which the engine got them."""
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def start(self, **fields: object) -> None:
        await self._send(worker_pb2.FrameToWorker(start=start(**fields)))

    async def acknowledge(self, stream_id: int) -> None:
        frame = worker_pb2.AcknowledgeBegun(stream_id=stream_id)
        await self._send(worker_pb2.FrameToWorker(acknowledge_begun=frame))

    async def generate(self, stream_id: int, output: list[int]) -> None:
        frame = worker_pb2.Generate(stream_id=stream_id, output_so_far=output)
        await self._send(worker_pb2.FrameToWorker(generate=frame))

    async def cancel(self, stream_id: int) -> None:
        frame = worker_pb2.Cancel(stream_id=stream_id)
        await self._send(worker_pb2.FrameToWorker(cancel=frame))

    async def pause(self, stream_id: int) -> None:
        await self._send(worker_pb2.FrameToWorker(pause=worker_pb2.Pause(stream_id=stream_id)))

    async def resume(self, stream_id: int) -> None:
        await self._send(worker_pb2.FrameToWorker(resume=worker_pb2.Resume(stream_id=stream_id)))

    async def _send(self, frame: worker_pb2.FrameToWorker) -> None:
        greeting, self._greeting = self._greeting, []
        await self._call.write(worker_pb2.RunRequest(frames=[*greeting, frame]))

    async def until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        async with within(seconds), self._news:
            await self._news.wait_for(condition)

    async def ended(self, *stream_ids: int) -> None:
        await self.until(lambda: all(i in self.ends for i in stream_ids))

    async def aclose(self) -> None:
        self._call.cancel()
        self._reader.cancel()
        await asyncio.wait([self._reader])
        await self.channel.close()

    async def load(self) -> worker_pb2.LoadReport:
        call = self.stub.WatchLoad(worker_pb2.WatchLoadRequest(), timeout=DEADLINE_SECONDS)
        try:
            message = await call.read()
            assert isinstance(message, worker_pb2.WatchLoadResponse)
            return message.report
        finally:
            call.cancel()

    async def _read(self) -> None:
        try:
            async for message in self._call:
                async with self._news:
                    self.messages += 1
                    for frame in message.frames:
                        self._take(frame)
                    self._news.notify_all()
        except grpc.aio.AioRpcError as error:
            assert error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)

    def _take(self, frame: worker_pb2.FrameFromWorker) -> None:
        match frame.WhichOneof("frame"):
            case "step":
                self.steps.append(frame.step)
                for stream_id, choice, position, token_ids, _ in tokens_of(frame.step):
                    assert stream_id not in self.ends, "tokens after the end"
                    output = self.tokens[stream_id][choice]
                    base = self.bases.setdefault((stream_id, choice), position)
                    assert position - base == len(output)
                    output.extend(token_ids)
            case "begun":
                self.begun.append(frame.begun.stream_id)
            case "prepared":
                self.prepared[frame.prepared.stream_id] = frame.prepared
            case "finished":
                assert frame.finished.stream_id not in self.ends
                self.ends[frame.finished.stream_id] = frame.finished
            case "failed":
                assert frame.failed.stream_id not in self.ends
                self.ends[frame.failed.stream_id] = frame.failed
            case "handed_over":
                assert frame.handed_over.stream_id not in self.ends
                self.ends[frame.handed_over.stream_id] = frame.handed_over


def start(**fields: object) -> worker_pb2.Start:
    """A Start for model `sim` with a seed and 8 tokens unless said otherwise."""
    frame = worker_pb2.Start(**fields)
    frame.context.model = frame.context.model or "sim"
    frame.cache_salt = frame.cache_salt or b"salt"
    if not frame.sampling.HasField("max_tokens"):
        frame.sampling.max_tokens = 8
    return frame


def local_tokens(**fields: object) -> list[int]:
    """The tokens of one sequence in an engine without any service."""
    engine = create_engine(EngineSettings(kind="sim", sim_time_scale=0))
    layout_id = engine.info.layout.layout_id
    root = chain_root("sim", engine.info.weights_digest, layout_id, b"", b"salt")
    request: SequenceRequest = sequence_request(
        start(generate=worker_pb2.Generate(), **fields), 1, root, engine.info
    )
    output = run_local(engine, [request])[0]
    return next(iter(output.tokens.values()))


async def at_baseline(run: Run, seconds: float = 2) -> worker_pb2.LoadReport:
    """The load once nothing is held any more; fails if something still is after `seconds`."""
    async with within(seconds):
        while True:
            load = await run.load()
            held = (load.streams, load.leases, load.reservations, load.running, load.waiting)
            if held == (0, 0, 0, 0, 0) and load.free_pages == load.total_pages:
                return load
            await asyncio.sleep(0.05)


@pytest.fixture
async def open_run() -> AsyncIterator[Callable[..., Awaitable[Run]]]:
    runs: list[Run] = []

    async def open_one(address: str, version: int = VERSION) -> Run:
        runs.append(Run(address, version))
        return runs[-1]

    yield open_one
    for run in runs:
        await run.aclose()
