"""Families of models served by processes that are killed:
`python -m bench.families.killed [FAMILY…]`.

A family is a tiny random checkpoint in float32 (`python -m bench.families`). A store, a prefill
worker, two decode workers of the vLLM engine, a router and a frontend, each a process, answer 27
prompts in each of three ways, nine at once:

    split   KV of a prompt goes from the prefill worker to a decode worker
    worker  a decode worker is killed while it has some of the streams
    store   the store is killed while there are streams

A cell is the number of tokens that differ from the greedy ones of stock vLLM's `LLM`, of those in
the column `tokens`. `moved` is the number of placements of a stream after its first, `open` that
of streams that had not ended when the store was killed; none is an error. Requires `make vllm`.
"""

import argparse
import asyncio
import multiprocessing
import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from baton.client import AsyncClient, Delta
from baton.engine.testing.random_families import VOCAB, write_family
from baton.engine.testing.random_tokenizer import make_tokenizer
from baton.engine.testing.vllm_alone import stock
from baton.engine.vllm.environment import prepare
from baton.settings import EngineSettings
from baton.telemetry import logs
from baton.version import commit
from bench.families.family import BEGINNINGS, CLOSE, FAMILIES, OUTPUT_TOKENS, STATES, compare
from bench.families.handed_over import JOIN_SECONDS, MODEL, served
from bench.families.ways import LENGTHS, Prompt, prompts_of
from bench.harness import cli
from bench.harness.child import log_path
from bench.harness.fleet import Fleet, total
from bench.harness.table import Table

KILLED = tuple(family for family in FAMILIES if family not in STATES)
WAYS = ("split", "worker", "store")
COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 2, "frontend": 1}
KV_BYTES = 2**24
AT_ONCE = 9
TOKENS_FIRST = 5
"""A process is killed once a stream has so many tokens."""
ANSWER_SECONDS = 300.0


@dataclass
class Killer:
    """Kills processes of a fleet while they answer, and counts the streams that met it."""

    fleet: Fleet
    client: AsyncClient
    moved: int = 0
    open: int = 0

    async def outputs(self, prompts: Sequence[Prompt], way: str) -> list[Sequence[int]]:
        """Return the outputs of prompts, nine at once; a process is killed during each nine."""
        found: list[Sequence[int]] = []
        for number, at in enumerate(range(0, len(prompts), AT_ONCE)):
            victim = {"worker": f"decode-{number % 2}", "store": "kvstore-0"}.get(way)
            found += await self._together(prompts[at : at + AT_ONCE], victim)
        return found

    async def _together(self, prompts: Sequence[Prompt], victim: str | None) -> list[Sequence[int]]:
        before = await self._placements()
        running = asyncio.Event()
        async with asyncio.timeout(ANSWER_SECONDS), asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._answer(prompt, running)) for prompt in prompts]
            await running.wait()
            if victim is not None:
                self.fleet.kill(victim)
            if victim == "kvstore-0":
                self.open += sum(not task.done() for task in tasks)
        if victim is not None:
            await self.fleet.wait_ended(victim)
            await self.fleet.start(victim)
            await self.fleet.wait_ready(victim)
        if victim != "kvstore-0":
            self.moved += round(await self._placements() - before)
        return [task.result() for task in tasks]

    async def _answer(self, prompt: Prompt, running: asyncio.Event) -> Sequence[int]:
        tokens = 0
        async with self.client.generate(
            list(prompt), model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, temperature=0
        ) as stream:
            async for event in stream:
                tokens += len(event.token_ids) if isinstance(event, Delta) else 0
                if tokens >= TOKENS_FIRST:
                    running.set()
            return (await stream.answer()).token_ids

    async def _placements(self) -> float:
        (frontend,) = self.fleet.frontends
        return total(await frontend.metrics(), "baton_frontend_placement_retries_total")


async def killed(model: Path, prompts: Mapping[str, Sequence[Prompt]]) -> dict[str, Any]:
    """Return outputs by way, and how many streams met a kill.

    Raises:
        ValueError: no stream met one.
    """
    settings = {"BATON_ENGINE_KIND": "vllm"}
    async with served(model, KV_BYTES, settings, COUNTS) as fleet:
        (frontend,) = fleet.frontends
        async with AsyncClient(f"127.0.0.1:{frontend.grpc_port}") as client:
            async with asyncio.timeout(JOIN_SECONDS):
                while not await client.models():
                    await asyncio.sleep(0.05)
            killer = Killer(fleet, client)
            outputs = {way: await killer.outputs(prompts[way], way) for way in WAYS}
    if not killer.moved or not killer.open:
        raise ValueError(f"{killer.moved} streams moved, {killer.open} met the store's end")
    return {"outputs": outputs, "moved": killer.moved, "open": killer.open}


def alone(model: str, prompts: list[Prompt]) -> list[dict[str, Any]]:
    """Return what stock vLLM answers; a process can have only one engine of vLLM.

    What vLLM logs goes to a file.
    """
    with log_path("families-alone").open("wb") as errors:
        os.dup2(errors.fileno(), 2)
    prepare(EngineSettings(threads=1))
    asked = {"model": model, "prompts": list(map(list, prompts)), "output_tokens": OUTPUT_TOKENS}
    return stock(asked)


async def _measured(family: str) -> dict[str, Any]:
    count = BEGINNINGS * len(LENGTHS)
    drawn = prompts_of(BEGINNINGS * len(WAYS), VOCAB)
    prompts = {way: drawn[at * count : (at + 1) * count] for at, way in enumerate(WAYS)}
    with tempfile.TemporaryDirectory(prefix="baton-families-") as directory:
        model = write_family(Path(directory), family)
        make_tokenizer(VOCAB).save(str(model / "tokenizer.json"))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            asked = asyncio.get_running_loop().run_in_executor(pool, alone, str(model), drawn)
            expected = await asked
        found = await killed(model, prompts)
    row: dict[str, Any] = {"tokens": count * OUTPUT_TOKENS, "excused": 0}
    for at, way in enumerate(WAYS):
        part = expected[at * count : (at + 1) * count]
        row[way], excused = compare(found["outputs"][way], part, CLOSE)
        row["excused"] += excused
    return row | {"moved": found["moved"], "open": found["open"]}


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    logs.configure("bench", "bench", "warning")
    table = Table(
        ("family", "<9"),
        ("tokens", "6d"),
        *((way, "6d") for way in WAYS),
        ("excused", "7d"),
        ("moved", "5d"),
        ("open", "5d"),
        ("commit", "<8"),
    )
    found: dict[str, Any] = {}
    for family in options.families or KILLED:
        found[family] = row = await _measured(family)
        cells = (row[way] for way in WAYS)
        table.row(
            family, row["tokens"], *cells, row["excused"], row["moved"], row["open"], commit()
        )
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(KILLED)}")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="llama", needs="what make vllm installs")
