"""A stream gives everything back and ends once, whenever it is cancelled."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from baton.engine.base import SequenceRequest, UnsupportedFeatureError
from baton.engine.events import EndReason, Event, SampledTokens, SequenceEnded
from baton.engine.factory import create_engine
from baton.errors import BatonError, Reason
from baton.internal.v1 import worker_pb2
from baton.internal.v1.worker_pb2 import Generate, Prefill, Prepare, Start
from baton.kv.client.client import KvStoreClient
from baton.kv.keys import chain_root
from baton.request.limits import PROVEN_TOKENS
from baton.rpc.protocol import hello
from baton.settings import EngineSettings
from baton.v1.common_pb2 import RequestContext, SamplingParams
from baton.worker.adapters.known import KnownAdapters
from baton.worker.core import WorkerCore
from baton.worker.engine_loop import EngineLoop
from baton.worker.session import RunSession
from baton.worker.stream.pause import SequencePause
from baton.worker.stream.stream import WorkStream
from tests.support.clock import within
from tests.support.doubles.call import ScriptedCall
from tests.support.wait import wait_for

SETTINGS = EngineSettings(kind="sim", sim_decode_step_seconds=0.002, kv_bytes=64 * 1024)


@dataclass
class Sink:
    """Notes what a stream says."""

    frames: list[worker_pb2.FrameFromWorker] = field(default_factory=list)
    tokens: int = 0

    def send(self, frame: worker_pb2.FrameFromWorker) -> None:
        self.frames.append(frame)

    def add_tokens(self, stream_id: int, tokens: SampledTokens) -> None:
        self.tokens += len(tokens.token_ids)

    def ends(self) -> list[str | None]:
        kinds = [frame.WhichOneof("frame") for frame in self.frames]
        return [kind for kind in kinds if kind in ("finished", "failed", "handed_over")]


@pytest.fixture
async def core() -> AsyncIterator[WorkerCore]:
    """A simulator without a store; nothing is open or held at the end of the test."""
    failures: list[BaseException] = []
    engine_loop = EngineLoop(lambda: create_engine(SETTINGS), failures.append)
    engine = await engine_loop.start()
    async with KvStoreClient(lambda: None, "worker", "1") as store:
        core = WorkerCore(engine, engine_loop, store, "sim", "epoch")
        publishing = asyncio.create_task(core.publish())
        yield core
        async with within(5):
            await core.wait_idle()
        stats = engine.stats()
        assert (stats.open_sequences, stats.free_pages) == (0, stats.total_pages)
        assert not publishing.done()
        assert failures == []
        publishing.cancel()
        await asyncio.wait([publishing])
        core.close()
    await engine_loop.stop()


def make_start(**work: object) -> Start:
    return Start(
        stream_id=1,
        context=RequestContext(model="sim"),
        prompt_token_ids=range(1, 41),
        sampling=SamplingParams(max_tokens=40),
        **(work or {"generate": Generate()}),  # type: ignore[arg-type]
    )


async def test_cancelled_before_it_began_it_ends_all_the_same(core: WorkerCore) -> None:
    sink = Sink()
    stream = core.open(make_start(), sink, core.remove)
    stream.cancel()
    await wait_for(stream.wait_closed())
    assert sink.ends() == ["failed"]
    assert core.streams == {}


@pytest.mark.parametrize(
    "work", [{"generate": Generate()}, {"prepare": Prepare()}, {"prefill": Prefill(n=2)}]
)
async def test_cancelled_at_any_moment_it_ends_once_and_holds_nothing(
    core: WorkerCore, work: dict[str, object]
) -> None:
    for turns in range(60):
        sink = Sink()
        stream = core.open(make_start(**work), sink, core.remove)
        for _ in range(turns % 30):
            await asyncio.sleep(0 if turns < 30 else 0.001)
        stream.cancel()
        stream.cancel()
        await wait_for(stream.wait_closed())
        assert len(sink.ends()) == 1
        assert core.streams == {}


@pytest.mark.parametrize(
    "work", [{"generate": Generate()}, {"prepare": Prepare()}, {"prefill": Prefill(n=2)}]
)
async def test_handed_over_at_any_moment_it_ends_once_and_holds_nothing(
    core: WorkerCore, work: dict[str, object]
) -> None:
    for turns in range(40):
        sink = Sink()
        stream = core.open(make_start(**work), sink, core.remove)
        for _ in range(turns % 20):
            await asyncio.sleep(0 if turns < 20 else 0.001)
        stream.hand_over()
        stream.hand_over()
        if turns % 3 == 0:
            stream.cancel()
        await wait_for(stream.wait_closed())
        assert sink.ends() in (["handed_over"], ["finished"])
        assert core.streams == {}


async def paused_after_a_token(core: WorkerCore, sink: Sink, start: Start) -> WorkStream:
    """Open a stream and pause it; return it once the engine has set it aside."""
    stream = core.open(start, sink, core.remove)
    while not sink.tokens:
        await asyncio.sleep(0)
    stream.pause()
    async with within(5):
        while not core.stats.paused:
            await asyncio.sleep(0.001)
    return stream


async def test_a_paused_stream_waits_and_goes_on(core: WorkerCore) -> None:
    sink = Sink()
    stream = await paused_after_a_token(core, sink, make_start())
    before = sink.tokens
    await asyncio.sleep(0.02)
    assert sink.tokens == before < 40
    stream.resume()
    await wait_for(stream.wait_closed())
    assert (sink.tokens, sink.ends()) == (40, ["finished"])


@pytest.mark.parametrize("end", ["cancel", "hand_over", None])
async def test_paused_at_any_moment_it_ends_once_and_holds_nothing(
    core: WorkerCore, end: str | None
) -> None:
    for turns in range(40):
        sink = Sink()
        stream = core.open(make_start(), sink, core.remove)
        for turn in range(turns):
            await asyncio.sleep(0 if turns < 20 else 0.001)
            if turn % 3 == 0:
                stream.pause()
            elif turn % 3 == 2:
                stream.resume()
        stream.pause()
        if end is not None:
            getattr(stream, end)()
        else:
            await asyncio.sleep(0.001)
            stream.resume()
        await wait_for(stream.wait_closed())
        # One that ended by itself meanwhile is through.
        ends = {"cancel": "failed", "hand_over": "handed_over", None: "finished"}[end]
        assert sink.ends() in ([ends], ["finished"])
        assert core.streams == {}


async def test_a_paused_stream_is_late_at_its_deadline(core: WorkerCore) -> None:
    sink, start = Sink(), make_start()
    start.timeout.FromMilliseconds(300)
    stream = await paused_after_a_token(core, sink, start)
    await wait_for(stream.wait_closed())
    (failed,) = [frame.failed for frame in sink.frames if frame.HasField("failed")]
    assert BatonError.from_status(failed.status).reason is Reason.DEADLINE


async def test_a_stream_is_proven_before_it_pauses(core: WorkerCore) -> None:
    """Suspect work that comes next would wait for it."""
    sink, start = Sink(), make_start()
    start.suspect = True
    first = core.open(start, sink, core.remove)
    first.pause()
    other, next_start = Sink(), make_start()
    next_start.stream_id, next_start.suspect = 2, True
    second = core.open(next_start, other, core.remove)
    await wait_for(second.wait_closed())
    assert other.ends() == ["finished"]
    assert PROVEN_TOKENS <= sink.tokens < 40
    first.resume()
    await wait_for(first.wait_closed())
    assert sink.tokens == 40


async def test_a_frontend_that_pauses_all_the_time_costs_one_command(core: WorkerCore) -> None:
    class Commands:
        posted = 0

        def post(self, command: object) -> None:
            self.posted += 1

    commands: Any = Commands()
    pause = SequencePause(commands, 7)
    for _ in range(1000):
        pause.set(True)
        pause.set(False)
    assert commands.posted == 1


async def test_a_sampled_stream_that_no_other_goes_on_with_alike_stays(core: WorkerCore) -> None:
    core.engine.info = replace(core.engine.info, exact_continuation=False)
    for temperature, end in ((0.0, "handed_over"), (1.0, "finished")):
        sink = Sink()
        start = make_start()
        start.sampling.temperature = temperature
        stream = core.open(start, sink, core.remove)
        while not sink.tokens:
            await asyncio.sleep(0)
        stream.hand_over()
        await wait_for(stream.wait_closed())
        assert sink.ends() == [end]
        assert (stream.stream_id, sink.tokens == 40) == (1, end == "finished")


@pytest.mark.parametrize("seconds", [-1, 2**62])
async def test_a_timeout_of_any_size_is_a_timeout(core: WorkerCore, seconds: int) -> None:
    sink = Sink()
    start = make_start(timeout=Duration(seconds=seconds), generate=Generate())
    stream = core.open(start, sink, core.remove)
    await wait_for(stream.wait_closed())
    assert sink.ends() == ["failed" if seconds < 0 else "finished"]
    assert core.streams == {}


async def test_late_and_cancelled_at_once_it_still_gives_back(core: WorkerCore) -> None:
    for _ in range(20):
        sink = Sink()
        timeout = Duration(nanos=20_000_000)
        stream = core.open(make_start(timeout=timeout, generate=Generate()), sink, core.remove)
        asyncio.get_running_loop().call_later(0.02, stream.cancel)
        await wait_for(stream.wait_closed())
        assert sink.ends() == ["failed"]


async def test_the_end_of_a_session_cancels_its_streams_though_nobody_reads(
    core: WorkerCore,
) -> None:
    call: Any = ScriptedCall(takes=0)
    serving = asyncio.create_task(RunSession(core).serve(call))
    async with within(5):
        await asyncio.sleep(0)
        call.say(worker_pb2.RunRequest(frames=[worker_pb2.FrameToWorker(hello=hello())]))
        for number in range(20):
            start = make_start()
            start.stream_id = number
            call.say(worker_pb2.RunRequest(frames=[worker_pb2.FrameToWorker(start=start)]))
        assert len(core.streams) == 20
        await call.stuck.wait()
        await core.wait_idle()
        assert not serving.done()
        serving.cancel()
        await asyncio.wait([serving])
    assert serving.cancelled()
    assert core.streams == {}


async def test_more_streams_than_could_wait_or_run_are_refused_at_once(core: WorkerCore) -> None:
    most = core.engine.info.max_sequences + core.stats.total_pages
    sink = Sink()
    streams = [core.open(make_start(), sink, core.remove) for _ in range(most)]
    with pytest.raises(BatonError) as caught:
        core.open(make_start(), sink, core.remove)
    assert caught.value.reason is Reason.OVERLOADED
    for stream in streams:
        stream.cancel()
    for stream in streams:
        await wait_for(stream.wait_closed())
    assert len(sink.ends()) == most


async def test_another_adapter_has_another_cache(
    core: WorkerCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    adapters = {"poet": b"p" * 16, "cook": b"c" * 16}
    info = core.engine.info
    core.adapters = KnownAdapters(adapters)
    roots = []

    def add(request: SequenceRequest) -> None:
        roots.append(request.root)
        raise UnsupportedFeatureError("adapters")

    monkeypatch.setattr(core.engine, "add", add)
    for adapter in ("", "poet", "cook"):
        sink = Sink()
        start = make_start()
        start.context.adapter = adapter
        stream = core.open(start, sink, core.remove)
        await wait_for(stream.wait_closed())
        assert sink.ends() == ["failed"]
    expected = [
        chain_root("sim", info.weights_digest, info.layout.layout_id, digest, b"")
        for digest in (b"", b"p" * 16, b"c" * 16)
    ]
    assert roots == expected


@pytest.mark.parametrize(
    "work", [{"generate": Generate()}, {"prepare": Prepare()}, {"prefill": Prefill(n=2)}]
)
async def test_a_sequence_that_the_engine_gives_up_fails_once_and_is_released(
    core: WorkerCore, monkeypatch: pytest.MonkeyPatch, work: dict[str, object]
) -> None:
    step = core.engine.step

    def give_up() -> list[Event]:
        events = [event for event in step() if not isinstance(event, SequenceEnded)]
        numbers = {event.id for event in events if isinstance(event, SampledTokens)}
        reasons = (EndReason.ERROR,)
        ends = [SequenceEnded(number, reasons, 1, 0, 1, 0, 0, "no memory") for number in numbers]
        return [*events, *ends]

    monkeypatch.setattr(core.engine, "step", give_up)
    sinks = [Sink(), Sink()]
    streams = [core.open(make_start(**work), sink, core.remove) for sink in sinks]
    for stream in streams:
        stream.generate(Generate())
    for stream, sink in zip(streams, sinks, strict=True):
        await wait_for(stream.wait_closed())
        assert sink.ends() == ["failed"]
        error = BatonError.from_status(sink.frames[-1].failed.status)
        assert error.reason is Reason.INTERNAL
        # What went wrong is for the log, and not for clients.
        assert "memory" not in error.message
    assert core.streams == {}
    # The engine serves on.
    monkeypatch.setattr(core.engine, "step", step)
    sink = Sink()
    stream = core.open(make_start(), sink, core.remove)
    await wait_for(stream.wait_closed())
    assert sink.ends() == ["finished"]


async def test_streams_let_go_of_an_engine_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = asyncio.get_running_loop().create_future()
    engine_loop = EngineLoop(lambda: create_engine(SETTINGS), failed.set_result)
    engine = await engine_loop.start()
    async with KvStoreClient(lambda: None, "worker", "1") as store:
        core = WorkerCore(engine, engine_loop, store, "sim", "epoch")
        begun = core.open(make_start(), Sink(), core.remove)
        while not engine.stats().running:
            await asyncio.sleep(0)

        def fail() -> list[Event]:
            raise RuntimeError("a rank has ended")

        monkeypatch.setattr(engine, "step", fail)
        sink = Sink()
        late = core.open(make_start(), sink, core.remove)
        assert str(await wait_for(failed)) == "a rank has ended"
        # What the engine had is lost with it: another worker goes on with the stream.
        for stream in (begun, late):
            stream.cancel()
            await wait_for(stream.wait_closed())
        assert core.streams == {}
        assert len(sink.ends()) == 1
        after = Sink()
        stream = core.open(make_start(), after, core.remove)
        await wait_for(stream.wait_closed())
        error = BatonError.from_status(after.frames[-1].failed.status)
        assert error.reason is Reason.WORKER_LOST
        core.close()
        await wait_for(engine_loop.stop())


async def test_a_frontend_of_another_protocol_is_refused(core: WorkerCore) -> None:
    call: Any = ScriptedCall(takes=0)
    serving = asyncio.create_task(RunSession(core).serve(call))
    await asyncio.sleep(0)
    start = worker_pb2.FrameToWorker(start=make_start())
    with pytest.raises(BatonError) as refused:
        call.say(worker_pb2.RunRequest(frames=[start]))
    assert refused.value.reason is Reason.PROTOCOL_MISMATCH
    assert not core.streams
    serving.cancel()
    await asyncio.wait([serving])


async def test_a_stream_counts_once_the_load_contains_it(core: WorkerCore) -> None:
    """Not before: a router would think the load of its ticket to be part of what is reported."""
    counted = []
    core.on_load_changed = lambda: counted.append(
        (any(one.counted for one in core.streams.values()), core.stats.open_sequences)
    )
    stream = core.open(make_start(prepare=Prepare()), Sink(), core.remove)
    assert not stream.counted
    async with within(5):
        while not stream.counted:
            await asyncio.sleep(0)
    assert core.stats.open_sequences == 1
    assert all(open_sequences == 1 for named, open_sequences in counted if named)
    stream.cancel()
