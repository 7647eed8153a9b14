"""What clients see when a process is killed: `python -m bench.serving.faults`.

Starts an etcd and `baton up` with the sim engine, keeps CONCURRENCY requests running, and kills one
process after the other with SIGKILL (etcd for OUTAGE_SECONDS; the supervisor starts the others
anew). Each answer is compared with the one that an undisturbed cluster gave.
"""

import argparse
import asyncio
import os
import signal
import tempfile
import time
import urllib.request
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from baton.client import AsyncClient, BatonClientError, Delta
from baton.cluster.local_etcd import LocalEtcd
from bench.harness import cli
from bench.harness.cluster import Cluster, cluster
from bench.harness.table import Table

CONCURRENCY = 16
PROMPTS = 64
OUTPUT_TOKENS = 48
WARM_UP_SECONDS = 2.0
LOAD_SECONDS = 10.0
SETTINGS = {
    # Every request takes the whole path, and spends a while in each part of it.
    "BATON_PLACEMENT_DISAGGREGATION": "always",
    "BATON_ENGINE_SIM_PREFILL_TOKENS_PER_SECOND": "4000",
}
# Who is killed, and how often clients try again.
VICTIMS = (
    ("none", 2),
    ("prefill-0", 2),
    ("decode-0", 2),
    ("kvstore-0", 2),
    ("router-0", 2),
    ("frontend-0", 2),
    ("frontend-0", 10),
    ("etcd", 2),
)


@dataclass
class Outcome:
    """One fault, as clients saw it."""

    victim: str
    retries: int
    ok: int = 0
    wrong: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    longest_gap: float = 0.0
    """Seconds between two events of one stream, its beginning included."""
    slowest: float = 0.0
    """Seconds of the slowest request."""
    moved: int = 0
    """Requests that were placed again because a worker was lost."""
    back: float | None = None
    """Seconds until the killed process had been started again."""


class Load:
    """Requests at constant concurrency, each checked."""

    def __init__(self, address: str, model: str) -> None:
        self._address = address
        self._model = model
        self._expected: dict[int, tuple[int, ...]] = {}

    async def run(self, outcome: Outcome, stop: asyncio.Event) -> None:
        async with AsyncClient(self._address, timeout=60, retries=outcome.retries) as client:
            numbers = iter(range(10**9))

            async def worker() -> None:
                while not stop.is_set():
                    await self._request(client, next(numbers) % PROMPTS, outcome)

            await asyncio.gather(*(worker() for _ in range(CONCURRENCY)))

    async def _request(self, client: AsyncClient, number: int, outcome: Outcome) -> None:
        prompt = [3 + (number * 31 + i * 7) % 250 for i in range(100 + number)]
        begun = last = time.monotonic()
        stream = client.generate(
            prompt,
            model=self._model,
            max_tokens=OUTPUT_TOKENS,
            ignore_eos=True,
            seed=number,
            resume=True,
        )
        try:
            async with stream:
                async for event in stream:
                    now = time.monotonic()
                    if isinstance(event, Delta):
                        outcome.longest_gap = max(outcome.longest_gap, now - last)
                    last = now
        except BatonClientError as error:
            kind = f"{type(error).__name__}: {error}"[:90]
            outcome.errors[kind] = outcome.errors.get(kind, 0) + 1
            await asyncio.sleep(0.2)
            return
        outcome.slowest = max(outcome.slowest, last - begun)
        expected = self._expected.setdefault(number, stream.token_ids)
        if stream.token_ids == expected and len(expected) == OUTPUT_TOKENS:
            outcome.ok += 1
        else:
            outcome.wrong += 1


async def strike(
    victim: str, up: Cluster, etcd: LocalEtcd, outcome: Outcome, outage: float
) -> None:
    """Kill a process and see it come back."""
    if victim == "none":
        await asyncio.sleep(LOAD_SECONDS)
        return
    began = time.monotonic()
    if victim == "etcd":
        await etcd.kill()
        await asyncio.sleep(outage)
        await etcd.start()
        outcome.back = time.monotonic() - began
        await asyncio.sleep(LOAD_SECONDS / 2)
        return
    pid = up.pids()[victim]
    os.kill(pid, signal.SIGKILL)
    while up.pids().get(victim, pid) == pid:
        await asyncio.sleep(0.02)
    outcome.back = time.monotonic() - began
    await asyncio.sleep(max(0.0, LOAD_SECONDS - (time.monotonic() - began)))


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    outcomes = []
    table = Table(
        ("killed", "<11"),
        ("retries", "7"),
        ("ok", "6"),
        ("failed", "6"),
        ("wrong", "6"),
        ("moved", "6"),
        ("longest gap s", "10.2f"),
        ("slowest s", "10.2f"),
        ("back s", "6.2f"),
    )
    with tempfile.TemporaryDirectory() as directory:
        async with LocalEtcd(Path(directory)) as etcd:
            arguments = ("--engine=sim", f"--etcd-endpoint={etcd.endpoints[0]}")
            async with cluster(*arguments, settings=SETTINGS) as up:
                load = Load(up.grpc, up.model)
                for victim, retries in VICTIMS:
                    outcome = Outcome(victim, retries)
                    before = await placement_retries(up)
                    stop = asyncio.Event()
                    running = asyncio.create_task(load.run(outcome, stop))
                    await asyncio.sleep(WARM_UP_SECONDS)
                    await strike(victim, up, etcd, outcome, options.outage)
                    stop.set()
                    async with asyncio.timeout(90):
                        await running
                    outcome.moved = max(0, await placement_retries(up) - before)
                    outcomes.append(asdict(outcome))
                    table.row(
                        victim,
                        retries,
                        outcome.ok,
                        sum(outcome.errors.values()),
                        outcome.wrong,
                        outcome.moved,
                        outcome.longest_gap,
                        outcome.slowest,
                        "" if outcome.back is None else outcome.back,
                    )
                    for kind, count in outcome.errors.items():
                        print(f"  {count} × {kind}")
    return outcomes


async def placement_retries(up: Cluster) -> int:
    """Return the frontend's count of requests that it placed a second time."""
    url = f"http://{up.http}/metrics"
    text = (await asyncio.to_thread(urllib.request.urlopen, url)).read().decode()
    return int(float(text.split("\nbaton_frontend_placement_retries_total ")[1].split()[0]))


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--outage", type=float, default=30.0, help="seconds without etcd")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments)
