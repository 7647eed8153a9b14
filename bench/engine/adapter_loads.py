"""What loading LoRA adapters costs streams of others: `python -m bench.engine.adapter_loads`.

Streams of the base model decode in a worker's engine loop. In turns they run alone, and while a
worker's `ResidentAdapters` loads one adapter after the other. Each turn yields quantiles of the
time between tokens; a line has the medians over all rounds, and that of the ratios of two turns
that follow each other. Time for which the engine's thread was ready to run and had no core is not
counted: on a busy machine it is mostly other programs' doing.

    python -m bench.engine.adapter_loads [--engine torch] [--model 64M] [--streams 8] [--rank 16]
        [--pause 0] [--steps 120] [--rounds 8]
"""

import argparse
import asyncio
import statistics
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from operator import methodcaller
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from baton.engine.base import Engine, EngineStats, SequenceRequest
from baton.engine.events import Admitted, Event
from baton.engine.factory import create_engine
from baton.engine.lora.adapter import read_adapter
from baton.engine.testing.random_adapter import write_random_adapter
from baton.models.adapters.cache import AdapterCache
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from baton.worker.adapters.downloads import AdapterDownloads
from baton.worker.adapters.known import KnownAdapter
from baton.worker.adapters.resident import ResidentAdapters
from baton.worker.engine_loop import EngineLoop
from bench.engine.adapters import LAYERS
from bench.harness import cli
from bench.harness.checkpoints import SIZES, random_llama
from bench.harness.stats import percentile
from bench.harness.table import Table

_SLOTS = 2
_ADAPTERS = 4


class Gaps:
    """Seconds between the ends of an engine's steps, less those without a core."""

    def __init__(self, engine: Engine) -> None:
        self._step = engine.step
        self.found: list[float] = []
        self._last: float | None = None
        engine.step = self.step  # type: ignore[method-assign]  # timed from outside

    def step(self) -> list[Event]:
        """Run a step of the engine."""
        events = self._step()
        now = time.perf_counter() - _without_core()
        if self._last is not None:
            self.found.append(now - self._last)
        self._last = now
        return events

    def take(self) -> list[float]:
        """Return the gaps since the last call."""
        found, self.found = self.found, []
        return found


def _without_core() -> float:
    """Return the seconds for which this thread was ready and did not run: schedstat's second."""
    path = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    return int(path.read_text().split()[1]) / 1e9


class Rig:
    """A worker's engine loop with streams, and adapters that it can load."""

    def __init__(self, loop: EngineLoop, engine: Engine, adapters: Sequence[KnownAdapter]) -> None:
        self._loop = loop
        self._adapters = adapters
        self._next = 0
        downloads = AdapterDownloads(AdapterCache())
        self.resident = ResidentAdapters(engine, loop, downloads)
        self.loads = 0
        self.steps = 0
        self._waiters: dict[asyncio.Future[None], int] = {}
        """By what waits for it: a number of steps."""
        loop.deliver_to(self._deliver)

    def _deliver(self, events: list[Event], stats: EngineStats) -> None:  # noqa: ARG002
        for event in events:
            if isinstance(event, Admitted):
                self._loop.post(methodcaller("start", event.id, event.cached_tokens))
        self.steps += 1
        for waiter, at in self._waiters.items():
            if at <= self.steps and not waiter.done():
                waiter.set_result(None)

    async def run(self, steps: int) -> None:
        """Return after some steps."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters[waiter] = self.steps + steps
        try:
            await waiter
        finally:
            del self._waiters[waiter]

    async def load(self, pause: int) -> None:
        """Load one adapter after the other, each in the place of the one used longest ago.

        Args:
            pause: steps between two loads.
        """
        while True:
            adapter = self._adapters[self._next % len(self._adapters)]
            self._next += 1
            await self.resident.acquire(adapter)
            await self.resident.release(adapter)
            self.loads += 1
            if pause:
                await self.run(pause)


async def measure(options: argparse.Namespace) -> Any:
    """Print a line per quantile."""
    model = random_llama(options.model)
    vllm = options.engine == "vllm"
    native = {} if vllm else {"native": "required" if options.native else "off"}
    settings = EngineSettings.model_validate(
        {
            "kind": options.engine,
            "model": model,
            "dtype": options.dtype,
            "threads": options.threads,
            "max_adapter_rank": options.rank,
            "adapter_slots": _SLOTS,
            "max_running": options.streams,
            "self_check": False,
            **native,
        }
    )
    loop = EngineLoop(lambda: create_engine(settings), on_failed=_fail)
    engine = await loop.start()
    try:
        with TemporaryDirectory() as directory:
            return await _compare(loop, engine, _write(engine, model, directory, options), options)
    finally:
        await loop.stop()


def _fail(error: BaseException) -> None:
    raise error


def _write(
    engine: Engine, model: Path, directory: str, options: argparse.Namespace
) -> Sequence[KnownAdapter]:
    limits = engine.info.adapter_limits
    assert limits is not None
    found = []
    for number in range(_ADAPTERS):
        made = Path(directory, str(number))
        write_random_adapter(made, model, number, rank=options.rank, modules=LAYERS, scale=0.02)
        adapter = read_adapter(str(number), made, limits)
        found.append(KnownAdapter(adapter.name, adapter.digest, adapter))
    return found


async def _compare(
    loop: EngineLoop,
    engine: Engine,
    adapters: Sequence[KnownAdapter],
    options: argparse.Namespace,
) -> Any:
    gaps = Gaps(engine)
    rig = Rig(loop, engine, adapters)
    length = (options.steps + 40) * (2 * options.rounds + 2)
    sampling = SamplingParams(temperature=0, max_tokens=length, ignore_eos=True, seed=1)
    for number in range(options.streams):
        prompt = [(31 * i + 7 * number + i * i) % 400 for i in range(options.prompt)]
        asked = SequenceRequest(number, b"root", prompt, sampling)
        await loop.call(methodcaller("add", asked))
    await rig.run(20)
    turns: dict[bool, list[list[float]]] = {False: [], True: []}
    loads = []
    for _ in range(options.rounds):
        for busy in (False, True):
            task = asyncio.create_task(rig.load(options.pause)) if busy else None
            await rig.run(3)
            gaps.take()
            before = rig.loads
            await rig.run(options.steps)
            turns[busy].append(gaps.take())
            if task is not None:
                loads.append((rig.loads - before) / options.steps)
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await rig.run(3)
    for number in range(options.streams):
        await loop.call(methodcaller("close", number))
    print(
        f"{statistics.median(loads):.2f} loads per step, each {rig.resident.load_seconds * 1e3:.1f}"
        " ms"
    )
    rig.resident.close()
    table = Table(("gap", "<6"), ("alone ms", "9.2f"), ("loading ms", "10.2f"), ("ratio", "6.3f"))
    found = []
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99)):
        alone = [percentile(turn, percent) for turn in turns[False]]
        loading = [percentile(turn, percent) for turn in turns[True]]
        ratio = statistics.median(b / a for a, b in zip(alone, loading, strict=True))
        table.row(name, statistics.median(alone) * 1e3, statistics.median(loading) * 1e3, ratio)
        found.append({"gap": name, "alone": alone, "loading": loading, "ratio": ratio})
    return found


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", default="torch", choices=("torch", "vllm"))
    parser.add_argument("--model", default="64M", choices=SIZES)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--steps", type=int, default=120, help="of a turn")
    parser.add_argument("--pause", type=int, default=0, help="steps between two loads")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--no-native", dest="native", action="store_false", help="plain torch")


if __name__ == "__main__":
    smallest = "--model 6M --streams 2 --prompt 8 --steps 10 --rounds 1 --no-native"
    cli.main(measure, __doc__, _arguments, rounds=8, smallest=smallest)
