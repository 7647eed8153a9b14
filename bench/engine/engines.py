"""The engines that bench.engine.throughput compares."""

import argparse
import json
import os
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgspec
import torch

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, SampledTokens
from baton.engine.factory import create_engine
from baton.sampling import SamplingParams
from baton.settings import EngineSettings
from bench.engine.case import CLOCKS, WARM_UP_STEPS, Case
from bench.harness import ROOT
from bench.harness.child import Helper, helper

GREEDY = SamplingParams(temperature=0)


class Contender(ABC):
    """An engine of the comparison."""

    @abstractmethod
    async def run(self, case: Case, turn: int) -> float:
        """Compute a case; return the seconds of its timed part."""


class Ours(Contender):
    """An engine of Baton, in this process."""

    def __init__(self, settings: EngineSettings, clock: str) -> None:
        self._now = CLOCKS[clock]
        began = time.perf_counter()
        self._engine: Engine = create_engine(settings)
        self._engine.warm_up()
        self.start_seconds = time.perf_counter() - began
        self._next_id = 0
        self._torch_threads = torch.get_num_threads()
        """Threads at creation: engines of one process may differ."""

    async def run(self, case: Case, turn: int) -> float:
        return sum(self.timed(case, turn, (GREEDY,)))

    def timed(self, case: Case, turn: int, sampling: Sequence[SamplingParams]) -> list[float]:
        """Return the seconds of each decode step, or the total of the steps that read the prompts.

        Args:
            case: the case to compute.
            turn: the round.
            sampling: the parameters of the rows, in turns.
        """
        torch.set_num_threads(self._torch_threads)
        engine = self._engine
        drawn: dict[int, int] = {}
        output = case.steps + 64 if case.steps else 1
        ids = []
        began = self._now()
        for row, prompt in enumerate(case.prompts(turn)):
            asked = msgspec.structs.replace(
                sampling[row % len(sampling)], max_tokens=output, ignore_eos=True
            )
            engine.add(SequenceRequest(self._next_id, b"bench", tuple(prompt), asked))
            ids.append(self._next_id)
            self._next_id += 1

        def step() -> None:
            for event in engine.step():
                if isinstance(event, Admitted):
                    engine.start(event.id, event.cached_tokens)
                elif isinstance(event, SampledTokens):
                    drawn[event.id] = drawn.get(event.id, 0) + len(event.token_ids)
            engine.stats()  # as a worker does after each step

        while len(drawn) < case.batch:
            step()
        seconds = [self._now() - began]
        if case.steps:
            for _ in range(WARM_UP_STEPS):
                step()
            marks = [self._now()]
            for _ in range(case.steps):
                step()
                marks.append(self._now())
            seconds = [after - before for before, after in pairwise(marks)]
        for each in ids:
            engine.close(each)
        if not case.steps:
            engine.evict_blocks()
        return seconds


def torch_settings(
    options: argparse.Namespace, model: Path, deterministic: str = "auto"
) -> EngineSettings:
    """Return the settings of the torch engine."""
    return EngineSettings(
        model=model,
        device=options.device,
        native=options.native,
        deterministic=deterministic,
        threads=options.threads,
        chunk_tokens=options.chunk_tokens,
        kv_bytes=options.kv_bytes,
    )


class Vllm(Contender):
    """vLLM in its own process."""

    def __init__(self, peer: Helper, version: str) -> None:
        self._peer = peer
        self.version = version

    async def run(self, case: Case, turn: int) -> float:
        asked = {"case": (case.batch, case.prompt, case.steps), "turn": turn}
        answer = await self._peer.ask(asked)
        return float(answer["seconds"])


@asynccontextmanager
async def vllm(options: argparse.Namespace, model: Path) -> AsyncIterator[Vllm]:
    """Run vLLM until the block exits; its output goes to build/bench/vllm.log."""
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
            options.device,
            settings=settings,
            stderr=log,
        )
        async with started as peer:
            yield Vllm(peer, json.loads(await peer.receive())["version"])
