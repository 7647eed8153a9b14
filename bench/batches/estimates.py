"""How right `estimated_completion` of batches is: `python -m bench.batches.estimates`.

Batches begin one after the other on one worker of the sim engine, of random sizes, so that one to
four run at once, while more and fewer interactive requests run beside them: their number changes at
random times. The estimate is read when a random share of the batch's lines has ended, and compared
with its end: the error is a share of the time that was left then. Nothing of the load is known in
advance, as in life.
"""

import argparse
import asyncio
import random
import statistics
import time
from contextlib import suppress

import httpx

from bench.batches.deadlines import OUTPUT, PLACES, SECONDS, Batches, Requests
from bench.harness import cli
from bench.harness.cluster import cluster
from bench.harness.table import Table

LINES = (40, 120)
STREAMS = (0, 5)
"""Interactive requests at once: the fewest and the most."""
CHANGE_SECONDS = (2.0, 8.0)
"""How long their number stays."""
READ_AT = (0.1, 0.6)
"""Share of a batch's lines that have ended when its estimate is read."""
BETWEEN_SECONDS = (6.0, 12.0)
"""From one batch's beginning to the next."""


async def load(requests: Requests, draw: random.Random) -> None:
    """Run a changing number of interactive requests, until cancelled."""
    running: list[asyncio.Task[None]] = []
    try:
        while True:
            wanted = draw.randint(*STREAMS)
            while len(running) < wanted:
                running.append(asyncio.create_task(requests.stream()))
            while len(running) > wanted:
                running.pop().cancel()
            await asyncio.sleep(draw.uniform(*CHANGE_SECONDS))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def one(batches: Batches, lines: int, share: float) -> tuple[float, float]:
    """Run a batch; return the seconds that were left when its estimate was read, as estimated and
    as they were."""
    made = await batches.create(lines, "24h")
    while True:
        found = await batches.get(made["id"])
        if found["status"] not in ("validating", "in_progress"):
            raise SystemExit(f"a batch ended without an estimate: {found}")
        if found["request_counts"]["completed"] >= share * lines and found["estimated_completion"]:
            break
        await asyncio.sleep(0.1)
    read = time.time()
    ended, _ = await batches.ended(made["id"])
    if ended["request_counts"]["completed"] != lines:
        raise SystemExit(f"not all lines ended: {ended}")
    return found["estimated_completion"] - read, time.time() - read


async def measure(options: argparse.Namespace) -> list[dict[str, float]]:
    settings = {
        "BATON_ENGINE_MAX_RUNNING": str(PLACES),
        "BATON_ENGINE_SIM_TIME_SCALE": "2",
        "BATON_BATCHES_RATE_SECONDS": str(options.rate_seconds),
    }
    pools = ("--prefill", "0", "--decode", "0", "--combined", "1")
    limits = httpx.Limits(max_connections=200)
    draw = random.Random(options.seed)
    async with (
        cluster("--engine", "sim", "--batches", *pools, settings=settings) as up,
        httpx.AsyncClient(base_url=f"http://{up.http}", timeout=SECONDS, limits=limits) as client,
    ):
        requests = Requests(client, up.model)
        batches = Batches(client, requests, up)
        beside = asyncio.create_task(load(requests, draw))
        running = []
        try:
            for _ in range(options.batches):
                lines, share = draw.randint(*LINES), draw.uniform(*READ_AT)
                running.append((lines, asyncio.create_task(one(batches, lines, share))))
                await asyncio.sleep(draw.uniform(*BETWEEN_SECONDS))
            found = [(lines, *await task) for lines, task in running]
        finally:
            for task in (beside, *(task for _, task in running)):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    print(f"{len(requests.first_tokens)} interactive requests; lines of {OUTPUT} tokens")
    table = Table(("lines", "5d"), ("estimated s", "6.1f"), ("was s", "6.1f"), ("error", "6.3f"))
    rows = []
    for lines, estimated, was in found:
        rows.append({"lines": lines, "left": was, "error": abs(estimated / was - 1)})
        table.row(lines, estimated, was, rows[-1]["error"])
    print(f"median error {statistics.median(row['error'] for row in rows):.3f}")
    return rows


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batches", type=int, default=20, help="default: 20")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate-seconds", type=float, default=10.0, help="memory of the rate")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--batches 2")
