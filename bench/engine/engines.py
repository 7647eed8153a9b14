"""The engines that bench.engine.throughput compares."""

import argparse
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens
from baton.engine.factory import create_engine
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.engine.case import CLOCKS, WARM_UP_STEPS, Case
from bench.harness import ROOT
from bench.harness.child import Helper, helper


class Contender(ABC):
    """An engine that is compared."""

    @abstractmethod
    async def run(self, case: Case, turn: int) -> float:
        """Compute a case; return the seconds of its timed part."""


class Ours(Contender):
    """The embedded engine, in this process."""

    def __init__(self, options: argparse.Namespace, model: Path) -> None:
        settings = EngineSettings(
            model=model,
            device=options.device,
            native=options.native,
            threads=options.threads,
            chunk_tokens=options.chunk_tokens,
            kv_bytes=options.kv_bytes,
        )
        self._now = CLOCKS[options.clock]
        began = time.perf_counter()
        self._engine: Engine = create_engine(settings)
        self._engine.warm_up()
        self.start_seconds = time.perf_counter() - began
        self._next_id = 0

    async def run(self, case: Case, turn: int) -> float:
        engine = self._engine
        drawn: dict[int, int] = {}
        sampling = SamplingParams(
            temperature=0, max_tokens=case.steps + 64 if case.steps else 1, ignore_eos=True
        )
        ids = []
        began = self._now()
        for prompt in case.prompts(turn):
            asked = SequenceRequest(self._next_id, b"bench", tuple(prompt), sampling)
            engine.add(asked)
            ids.append(self._next_id)
            self._next_id += 1

        def step() -> None:
            for event in engine.step():
                if isinstance(event, Admitted):
                    engine.start(event.id, event.cached_tokens)
                elif isinstance(event, SampledTokens):
                    drawn[event.id] = drawn.get(event.id, 0) + len(event.token_ids)

        while len(drawn) < case.batch:
            step()
        if case.steps:
            for _ in range(WARM_UP_STEPS):
                step()
            began = self._now()
            for _ in range(case.steps):
                step()
        seconds = self._now() - began
        for each in ids:
            engine.close(each)
        if not case.steps:
            engine.evict_blocks()
        return seconds


class Vllm(Contender):
    """vLLM in a process of its own."""

    def __init__(self, peer: Helper, version: str) -> None:
        self._peer = peer
        self.version = version

    async def run(self, case: Case, turn: int) -> float:
        asked = {"case": (case.batch, case.prompt, case.steps), "turn": turn}
        answer = await self._peer.ask(asked)
        return float(answer["seconds"])


@asynccontextmanager
async def vllm(options: argparse.Namespace, model: Path) -> AsyncIterator[Vllm]:
    """Run vLLM until the block ends; what it says is in build/bench/vllm.log."""
    cores = sorted(os.sched_getaffinity(0))[: options.threads]
    settings = {
        "VLLM_CPU_OMP_THREADS_BIND": options.bind or ",".join(map(str, cores)),
        "VLLM_CPU_KVCACHE_SPACE": "4",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with (ROOT / "build" / "bench" / "vllm.log").open("w") as log:
        started = helper(
            "bench.engine.peer_vllm",
            model,
            options.clock,
            settings=settings,
            stderr=log,
        )
        async with started as peer:
            yield Vllm(peer, json.loads(await peer.receive())["version"])
