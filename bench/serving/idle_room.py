"""Interactive requests next to class batch, and without: `python -m bench.serving.idle_room`.

Interactive requests come at random, with prompts of 200 to 1,500 tokens and 48 output tokens: first
alone, then next to 64 and 256 lines of class batch at once, of 1,024 shared and 96 own prompt
tokens and 64 output tokens. Engines are `sim`. All runs in turns for each seed, with other prompts
each time. Last comes a burst of interactive requests while class batch alone has all workers,
compared with the same burst on an empty cluster.

"of left": lines per second compared with what is left for them, which is lines per second without
interactive requests, less the share of the workers' time that the interactive requests' own tokens
take by the engine's costs.
"""

import argparse
import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any

import grpc

from baton.rpc.channels import open_channel
from baton.settings import EngineSettings
from baton.v1 import common_pb2, inference_pb2
from baton.v1.inference_pb2_grpc import InferenceServiceStub
from bench.harness import cli
from bench.harness.cluster import cluster
from bench.harness.stats import percentile
from bench.harness.table import Table

INTERACTIVE: Any = common_pb2.PRIORITY_CLASS_INTERACTIVE
BATCH: Any = common_pb2.PRIORITY_CLASS_BATCH
WORKERS = {
    "combined": ("--prefill", "0", "--decode", "0", "--combined", "2"),
    "pools": ("--prefill", "2", "--decode", "2"),
}
PROMPTS = (200, 1500)
OUTPUT = 48
SHARED, OWN, LINE_OUTPUT = 1024, 96, 64
"""Tokens of a line: of its prompt that all have, of its prompt alone, and of its output."""
BURST = 8
SETTLE_SECONDS = 4.0
"""How long lines run before a window."""
_END: Any = grpc.aio.EOF  # type: ignore[attr-defined]
Row = dict[str, Any]


@dataclass
class Seen:
    """What clients saw, in seconds."""

    first: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    """When requests ended."""


class Clients:
    """Requests to one cluster, with prompts that no other request has."""

    def __init__(self, stub: Any, model: str, seed: int) -> None:
        self._stub = stub
        self._model = model
        self._draw = random.Random(seed)

    def tokens(self, count: int) -> list[int]:
        return [self._draw.randrange(3, 500) for _ in range(count)]

    async def ask(self, prompt: Sequence[int], output: int, priority: Any, seen: Seen) -> None:
        """Run a request to its end."""
        request = inference_pb2.GenerateRequest()
        request.context.model = self._model
        request.context.priority = priority
        request.token_ids.ids.extend(prompt)
        request.sampling.temperature = 0.0
        request.sampling.max_tokens = output
        request.sampling.ignore_eos = True
        call = self._stub.Generate(request, timeout=600)
        began, times = time.perf_counter(), list[float]()
        try:
            while (event := await call.read()) is not _END:
                if event.HasField("delta"):
                    times.append(time.perf_counter())
        finally:
            call.cancel()
        seen.first.append(times[0] - began)
        seen.gaps += [b - a for a, b in pairwise(times)]
        seen.whole.append(times[-1] - began)
        seen.ended.append(times[-1])

    async def interactive(self, rate: float, seconds: float) -> Seen:
        """Run requests at random times within a window."""
        seen, begin = Seen(), time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for at in sorted(self._draw.random() for _ in range(round(rate * seconds))):
                await asyncio.sleep(begin + at * seconds - time.perf_counter())
                prompt = self.tokens(self._draw.randint(*PROMPTS))
                tasks.create_task(self.ask(prompt, OUTPUT, INTERACTIVE, seen))
        return seen

    async def lines(self, at_once: int, seen: Seen) -> None:
        """Run lines, so many at once, until cancelled."""
        shared = self.tokens(SHARED)

        async def one() -> None:
            while True:
                await self.ask([*shared, *self.tokens(OWN)], LINE_OUTPUT, BATCH, seen)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(at_once):
                tasks.create_task(one())


async def window(clients: Clients, rate: float, lines: int, seconds: float) -> Row:
    """Measure one window of interactive requests next to lines; either may be none."""
    batch = Seen()
    task = asyncio.create_task(clients.lines(lines, batch)) if lines else None
    try:
        await asyncio.sleep(SETTLE_SECONDS if lines else 0)
        begin = time.perf_counter()
        seen = await clients.interactive(rate, seconds) if rate else Seen()
        await asyncio.sleep(begin + seconds - time.perf_counter())
        done = sum(begin <= at < begin + seconds for at in batch.ended)
    finally:
        await stop(task)
    return {
        "lines": lines,
        "first_p50": percentile(seen.first, 50),
        "first_p99": percentile(seen.first, 99),
        "gap_p50": percentile(seen.gaps, 50),
        "gap_p99": percentile(seen.gaps, 99),
        "whole_p50": percentile(seen.whole, 50),
        "lines_per_second": done / seconds,
    }


async def burst(clients: Clients, lines: int) -> float:
    """Return the first token of the first of a burst of equal requests, in seconds."""
    task = asyncio.create_task(clients.lines(lines, Seen())) if lines else None
    try:
        await asyncio.sleep(SETTLE_SECONDS if lines else 0)
        seen, length = Seen(), sum(PROMPTS) // 2
        async with asyncio.TaskGroup() as tasks:
            for _ in range(BURST):
                tasks.create_task(clients.ask(clients.tokens(length), OUTPUT, INTERACTIVE, seen))
        return min(seen.first)
    finally:
        await stop(task)


async def stop(task: asyncio.Task[None] | None) -> None:
    """End the lines, and wait until the cluster is idle."""
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    await asyncio.sleep(1.0)


def own_share(rate: float, scale: float, pools: bool) -> float:
    """Return the share of the busiest workers' time that interactive tokens take by themselves."""
    costs = EngineSettings()
    prompt = scale * sum(PROMPTS) / 2 / costs.sim_prefill_tokens_per_second
    output = scale * OUTPUT * costs.sim_decode_sequence_seconds
    return rate * (max(prompt, output) if pools else prompt + output) / 2


async def on_cluster(
    workers: str, places: int, options: argparse.Namespace, rows: list[Row], table: Table
) -> None:
    """Measure one kind of cluster."""
    settings = {
        "BATON_ENGINE_SIM_TIME_SCALE": str(options.scale),
        "BATON_ENGINE_MAX_RUNNING": str(places),
    }
    arguments = (*WORKERS[workers], "--engine", "sim")
    where: Row = {"workers": workers, "places": places}
    async with cluster(*arguments, settings=settings) as up, open_channel(up.grpc) as channel:
        stub = InferenceServiceStub(channel)
        await window(Clients(stub, up.model, 0), options.rate, 8, min(4.0, options.seconds))
        for seed in range(1, options.rounds + 1):
            clients = Clients(stub, up.model, seed)
            points = [(options.rate, 0)]
            for lines in options.lines:
                points += [(options.rate, lines), (0.0, lines)]
            for rate, lines in points:
                row = await window(clients, rate, lines, options.seconds)
                rows.append({**where, "rate": rate, "seed": seed, **row})
            empty, full = await burst(clients, 0), await burst(clients, max(options.lines))
            rows.append({**where, "empty": empty, "full": full})
    show(workers, places, options, rows, table)


def show(
    workers: str, places: int, options: argparse.Namespace, rows: list[Row], table: Table
) -> None:
    """Print the medians over seeds of one kind of cluster."""
    own = [row for row in rows if (row["workers"], row["places"]) == (workers, places)]

    def at(rate: float, lines: int, name: str) -> float:
        found = [row[name] for row in own if (row.get("rate"), row.get("lines")) == (rate, lines)]
        return float(median(found))

    share = own_share(options.rate, options.scale, workers == "pools")
    names = ("first_p50", "first_p99", "gap_p50", "gap_p99")
    alone = [at(options.rate, 0, name) for name in names]
    for lines in (0, *options.lines):
        values = [at(options.rate, lines, name) for name in names]
        done = at(options.rate, lines, "lines_per_second")
        left = at(0, lines, "lines_per_second") * (1 - share) if lines else 0.0
        table.row(
            f"{workers}, {places} places",
            lines,
            *(value * 1e3 for value in values),
            values[1] / alone[1],
            values[3] / alone[3],
            at(options.rate, lines, "whole_p50"),
            done,
            done / left if left else "",
        )
    bursts = [row for row in own if "empty" in row]
    empty, full = (median(row[name] for row in bursts) for name in ("empty", "full"))
    print(
        f"{workers}, {places} places, burst of {BURST}: first token after {full * 1e3:.0f} ms next "
        f"to {max(options.lines)} lines, {empty * 1e3:.0f} ms on an empty cluster: "
        f"{full / empty:.2f} times"
    )


async def measure(options: argparse.Namespace) -> list[Row]:
    rows: list[Row] = []
    table = Table(
        ("workers", "<20"),
        ("lines", "5d"),
        ("TTFT p50 ms", "6.0f"),
        ("p99", "6.0f"),
        ("interval p50 ms", "6.0f"),
        ("p99", "6.0f"),
        ("TTFT p99 ×", "6.2f"),
        ("interval p99 ×", "6.2f"),
        ("whole s", "6.2f"),
        ("lines/s", "6.1f"),
        ("of left", "6.2f"),
    )
    for workers in options.workers:
        for places in options.places:
            await on_cluster(workers, places, options, rows, table)
            cli.write(options, rows)
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", nargs="+", choices=WORKERS, default=list(WORKERS))
    parser.add_argument("--places", nargs="+", type=int, default=[64, 16], help="max_running")
    parser.add_argument("--lines", nargs="+", type=int, default=[64, 256], help="lines at once")
    parser.add_argument("--rate", type=float, default=4.0, help="interactive requests per second")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of a window")
    parser.add_argument("--scale", type=float, default=4.0, help="engine.sim_time_scale")


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        3,
        smallest="--rounds 1 --workers combined --places 16 --lines 32 --seconds 3 --scale 1",
    )
