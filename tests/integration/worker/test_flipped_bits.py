"""A thousand flipped bits below verification, seen as tokens: none is wrong.

A model computes a prompt's KV, and bits of it are flipped where it lies or travels: in the store's
memory, in the disk's file, on the wire. Then an engine that has forgotten the prompt is asked for
it again. With verification off such flips give other tokens: the injection works.
"""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from baton.engine.base import Engine
from baton.engine.events import SampledTokens
from baton.engine.factory import create_engine
from baton.internal.v1 import worker_pb2
from baton.kv.client.client import KvStoreClient
from baton.kv.verify import ALWAYS, NEVER
from baton.settings import EngineSettings, KvSettings
from baton.telemetry.logs import get_logger
from baton.worker.core import WorkerCore
from baton.worker.engine_loop import EngineLoop
from services.kvstore.api.admin import stat
from tests.support.clock import within
from tests.support.engine.model import MODEL, prompt_of
from tests.support.network.proxy import MARK_BYTES, FlippingProxy
from tests.support.stores import MIB, RunningStore, running_store
from tests.support.wait import eventually

log = get_logger(__name__)

PROMPT_TOKENS = 1024
OUTPUT_TOKENS = 16
FLIPS = 56
"""In one round: each in another of the prompt's 64 blocks."""


@pytest.fixture
def engine_of(random_model: Callable[..., Path]) -> Callable[[], Engine]:
    """Engines in float64, in which it does not matter which part of a prompt is computed."""
    settings = EngineSettings(model=random_model(), dtype="float64", threads=1, kv_bytes=8 * MIB)
    return lambda: create_engine(settings)


@dataclass
class Frames:
    """What one stream sends."""

    tokens: list[int] = field(default_factory=list)
    last: worker_pb2.FrameFromWorker | None = None

    def send(self, frame: worker_pb2.FrameFromWorker) -> None:
        self.last = frame

    def add_tokens(self, _: int, tokens: SampledTokens) -> None:
        self.tokens.extend(tokens.token_ids)


@dataclass
class Rig:
    """A worker, its store, and what lies between."""

    core: WorkerCore
    store: RunningStore
    proxy: FlippingProxy
    draw: random.Random
    prompt: list[int]
    output_tokens: int = OUTPUT_TOKENS

    async def ask(self) -> tuple[list[int], int]:
        """Tokens and cached tokens for the prompt, of an engine that remembers nothing."""
        await self.core._loop.call(lambda engine: engine.evict_blocks())
        frames, ended = Frames(), asyncio.Event()
        start = worker_pb2.Start(stream_id=1, prompt_token_ids=self.prompt)
        start.generate.SetInParent()
        start.context.model, start.cache_salt = MODEL, b"salt"
        start.sampling.max_tokens, start.sampling.ignore_eos = self.output_tokens, True
        start.sampling.temperature = 0.0

        def gone(stream) -> None:
            self.core.remove(stream)
            ended.set()

        self.core.open(start, frames, gone)
        async with within(60):
            await ended.wait()
            while frames.last is None:
                await asyncio.sleep(0)
        assert frames.last.HasField("finished"), frames.last
        return frames.tokens, frames.last.finished.usage.cached_tokens

    def chosen(self) -> list[bytes]:
        """Keys of the blocks of this round."""
        return self.draw.sample(self.keys, FLIPS)

    @property
    def keys(self) -> list[bytes]:
        """Of every block that the store has."""
        held = {slot.object_id.key for slot in self.store.store.table.objects()}
        if self.store.store.disk is not None:
            held |= {entry.object_id.key for entry in self.store.store.disk.index.entries()}
        return sorted(held)

    @property
    def noticed(self) -> int:
        """Objects that were found bad so far."""
        return sum(tier.bad_objects for tier in stat(self.store.store).tiers)


@asynccontextmanager
async def rig(
    make_engine: Callable[[], Engine],
    directory: Path,
    transport: str,
    verify: str,
    seed: str,
    disk: bool = False,
) -> AsyncIterator[Rig]:
    draw = random.Random(seed)
    prompt = prompt_of(PROMPT_TOKENS)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(
            running_store(
                directory,
                32 * MIB,
                disk_path=directory / "disk" if disk else None,
                disk_bytes=128 * MIB,
                verify=verify != NEVER,
            )
        )
        proxy = await stack.enter_async_context(FlippingProxy(store.address, draw))
        client = await stack.enter_async_context(
            KvStoreClient(
                lambda: proxy.address,
                "worker",
                "1",
                settings=KvSettings(transports=(transport,), verify=verify),
            )
        )
        assert await client.wait_connected(10)
        engine_loop = EngineLoop(make_engine, lambda error: pytest.fail(repr(error)))
        engine = await engine_loop.start()
        stack.push_async_callback(engine_loop.stop)
        core = WorkerCore(engine, engine_loop, client, MODEL, "epoch")
        stack.callback(core.close)
        publishing = asyncio.create_task(core.publish())
        stack.callback(publishing.cancel)
        yield Rig(core, store, proxy, draw, prompt)
        await store.at_baseline()


async def in_memory(rig: Rig) -> int:
    """Flip bits in the arena."""
    chosen = rig.chosen()
    for slot in rig.store.store.table.objects():
        if slot.object_id.key in chosen:
            bit = rig.draw.randrange(8 * slot.object_bytes)
            rig.store.store.arena.view(slot)[bit // 8] ^= 1 << bit % 8
    return len(chosen)


async def on_disk(rig: Rig) -> int:
    """Push everything out of memory, then flip bits in the file."""
    store = rig.store.store
    disk = store.disk
    assert disk is not None
    # As if all of memory were needed for something else.
    headroom, disk._spiller._headroom = disk._spiller._headroom, store.arena.header.data_bytes
    await eventually(lambda: not store.table.objects())
    disk._spiller._headroom = headroom
    chosen = rig.chosen()
    with disk._file.path.open("r+b") as file:
        for entry in disk.index.entries():
            if entry.object_id.key in chosen:
                bit = rig.draw.randrange(8 * entry.object_bytes)
                at = disk._file._data_at + entry.offset + bit // 8
                byte = os.pread(file.fileno(), 1, at)[0]
                os.pwrite(file.fileno(), bytes([byte ^ 1 << bit % 8]), at)
        os.fsync(file.fileno())  # the store reads past the page cache
    return len(chosen)


async def on_the_wire(rig: Rig) -> int:
    """Have the proxy flip bits on the way to the reader."""
    chosen = rig.chosen()
    rig.proxy.flipped.clear()
    blocks = {
        slot.object_id.key: bytes(rig.store.store.arena.view(slot))
        for slot in rig.store.store.table.objects()
    }
    everything = b"".join(blocks.values())
    for key in chosen:
        data, block = b"", blocks[key]
        # A token's first values are the same wherever it stands: a mark is to be of one block.
        while everything.count(data) != 1:
            at = rig.draw.randrange(len(block) - MARK_BYTES)
            data = block[at : at + MARK_BYTES]
        rig.proxy.marks[data] = len(rig.proxy.marks)
    return 0  # known only afterwards


WAYS = {
    "memory, read through shared memory": ("shm", in_memory, 256),
    "memory, read over gRPC": ("grpc", in_memory, 128),
    "disk": ("shm", on_disk, 256),
    "wire": ("grpc", on_the_wire, 360),
}
"""How the KV is read, how bits of it are flipped, and how many at least: 1,000 in all."""


@pytest.mark.parametrize("verify", [ALWAYS, NEVER])
@pytest.mark.parametrize("way", WAYS)
async def test_no_flipped_bit_becomes_a_token(
    engine_of: Callable[[], Engine],
    tmp_path: Path,
    way: str,
    verify: str,
) -> None:
    transport, flip, flips = WAYS[way]
    disk = flip is on_disk
    count = wrong = 0
    async with rig(engine_of, tmp_path, transport, verify, way, disk) as it:
        clean, cached = await it.ask()
        assert cached == 0
        again, cached = await it.ask()
        assert again == clean
        assert cached == PROMPT_TOKENS - 1
        started_with = it.noticed
        # One flip in 64 makes a small value enormous; most others change no token.
        while count < (flips if verify == ALWAYS else 0 if wrong else 20 * FLIPS):
            before = it.noticed
            flipped = await flip(it)
            tokens, cached = await it.ask()
            flipped = flipped or len(it.proxy.flipped)
            assert flipped > FLIPS // 2  # a mark may be cut in two by a read
            noticed = before + (flipped if verify == ALWAYS else 0)
            await eventually(lambda noticed=noticed: it.noticed >= noticed)
            assert it.noticed == noticed
            assert (cached == PROMPT_TOKENS - 1) == (verify == NEVER)
            count += flipped
            wrong += tokens != clean
        noticed = it.noticed - started_with
    log.info(
        "kv.flips.counted",
        way=way,
        verify=verify,
        flipped=count,
        noticed=noticed,
        wrong_answers=wrong,
    )
    assert noticed == (count if verify == ALWAYS else 0)
    assert wrong == 0 if verify == ALWAYS else wrong > 0
