"""Clients of other models while an upstream is dead: `python -m bench.providers.dead`.

Clients stream from the cluster's own model, first alone, then while 1,000 clients ask for a model
whose upstream accepts connections and never answers, in turn. The 1,000 wait as long as
`retry-after` says. Prints the time to first token and between tokens of the others in each phase,
and what the 1,000 got.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from statistics import median
from typing import Any

import aiohttp

from bench.harness import cli
from bench.harness.child import Helper, helper
from bench.harness.machine import cpu_seconds
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.providers.serving import Provided, provided

DEAD = "never"
FIRST_TOKEN_SECONDS = 5
CLIENTS = "clients"


async def ask_for_ever(url: str, count: int) -> Counter[str]:
    """Have clients ask a dead upstream until the input has a line; return what they got."""
    got: Counter[str] = Counter()
    body = {"model": DEAD, "messages": [{"role": "user", "content": "Hi"}], "stream": True}

    async def one(session: aiohttp.ClientSession) -> None:
        while True:
            began = time.monotonic()
            async with session.post(f"{url}/chat/completions", json=body) as response:
                await response.read()
                wait = float(response.headers.get("retry-after", 1))
                late = "late" if time.monotonic() - began > 1 else "at once"
                got[f"{response.status} {late}"] += 1
            await asyncio.sleep(wait)

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        tasks = [asyncio.ensure_future(one(session)) for _ in range(count)]
        try:
            await asyncio.to_thread(sys.stdin.readline)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    return got


async def phase(at: Provided, reader: Helper, options: argparse.Namespace) -> dict[str, float]:
    """Stream from the cluster's own model; return percentiles in ms, and the frontend's CPU."""
    job = {
        "url": at.url,
        "model": at.up.model,
        "streams": options.streams,
        "tokens": options.tokens,
        "rounds": options.requests,
    }
    before = cpu_seconds(at.frontend)
    seen = await reader.ask(job)
    return {
        "first": percentile(seen["first"], 99) * 1e3,
        "between": percentile(seen["gaps"], 99) * 1e3,
        "cpu": (cpu_seconds(at.frontend) - before) / seen["seconds"],
    }


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Alternate between phases; print and return them."""
    table = Table(
        ("phase", "<10"),
        ("first p99 ms", "12.1f"),
        ("between p99 ms", "14.1f"),
        ("frontend cores", "14.2f"),
    )
    rows: dict[str, list[dict[str, float]]] = {"alone": [], "with dead": []}
    got: Counter[str] = Counter()
    limits = ("--first-token-seconds", str(FIRST_TOKEN_SECONDS))
    async with AsyncExitStack() as stack:
        at = await stack.enter_async_context(provided([DEAD], *limits))
        reader = await stack.enter_async_context(helper("bench.providers.reader", "bare", "uvloop"))
        await phase(at, reader, options)  # warms up
        for _ in range(options.rounds):
            for name, found in rows.items():
                async with AsyncExitStack() as dead:
                    clients: Helper | None = None
                    if name != "alone":
                        count = str(options.clients)
                        running = helper("bench.providers.dead", CLIENTS, at.url, count)
                        clients = await dead.enter_async_context(running)
                        await asyncio.sleep(options.settle)
                    found.append(await phase(at, reader, options))
                    if clients is not None:
                        await clients.send("stop")
                        got.update(json.loads(await clients.receive()))
                table.row(name, *found[-1].values())
    for what in ("first", "between"):
        pairs = zip(rows["with dead"], rows["alone"], strict=True)
        factor = median(one[what] / other[what] for one, other in pairs)
        print(f"{what}: p99 is {factor:.3f} of that alone")
    print(f"the {options.clients} clients got: {dict(got)}")
    return {"rows": rows, "got": got}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's own arguments."""
    for name, default, what in (
        ("clients", 1000, "of the dead upstream"),
        ("streams", 16, "of the others, at once"),
        ("tokens", 64, "of each answer"),
        ("requests", 12, "of each of the others"),
    ):
        parser.add_argument(
            f"--{name}", type=int, default=default, help=f"{what}; default: {default}"
        )
    parser.add_argument(
        "--settle", type=float, default=12.0, help="seconds before a phase; default: 12"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == [CLIENTS]:
        print(json.dumps(asyncio.run(ask_for_ever(sys.argv[2], int(sys.argv[3])))), flush=True)
    else:
        cli.main(
            measure,
            __doc__,
            arguments,
            rounds=3,
            smallest="--rounds 1 --clients 30 --streams 4 --tokens 8 --requests 2 --settle 1",
        )
