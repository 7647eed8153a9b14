"""Delay until a change is in force at every frontend: `python -m bench.tenancy.changes`.

Starts etcd with 100,000 keys in it, and a cluster with four frontends and the simulated engine.
While another key sends requests to all frontends, keys are revoked and limits are set, one after
the other, and each frontend gets a request with the changed key every 20 ms. Prints the time from
the start of the change to the first response by it from the last of the frontends.
"""

import argparse
import asyncio
import os
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import httpx

from bench.harness import cli
from bench.harness.fleet import add_counts
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.serving.authentication import records
from bench.tenancy.scene import COUNTS, Scene, scene

POLL_SECONDS = 0.02
LOAD_PER_SECOND = 40
TOO_LATE_SECONDS = 30.0
CONTEXT_TOKENS = 8
"""Fewer than the prompt has."""
PROMPT = list(range(3, 19))

Ask = Callable[[httpx.AsyncClient], Awaitable[int]]


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


async def list_models(secret: str, client: httpx.AsyncClient) -> int:
    return (await client.get("/v1/models", headers=bearer(secret))).status_code


async def complete(secret: str, model: str, client: httpx.AsyncClient) -> int:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 1}
    return (await client.post("/v1/completions", json=body, headers=bearer(secret))).status_code


async def in_force(
    clients: list[httpx.AsyncClient], ask: Ask, change: Awaitable[Any], status: int
) -> float:
    """Make a change; return the seconds until all frontends respond with a status.

    Raises:
        TimeoutError: a frontend did not in time.
        RuntimeError: a frontend did before the change.
    """
    before = await asyncio.gather(*map(ask, clients))
    if set(before) != {200}:
        raise RuntimeError(f"before the change they answer {before}, not 200")
    began = time.monotonic()

    async def until(client: httpx.AsyncClient) -> float:
        while await ask(client) != status:
            await asyncio.sleep(POLL_SECONDS)
        return time.monotonic() - began

    async with asyncio.timeout(TOO_LATE_SECONDS):
        seconds: list[float] = []
        _, *seconds = await asyncio.gather(change, *map(until, clients))
    return max(seconds)


async def load(up: Scene, clients: list[httpx.AsyncClient], secret: str) -> None:
    """Send requests with one key, until cancelled."""
    async with asyncio.TaskGroup() as running:
        while True:
            running.create_task(complete(secret, up.model, random.choice(clients)))
            await asyncio.sleep(random.expovariate(LOAD_PER_SECOND))


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    print(f"load average {os.getloadavg()[0]:.1f}")
    stored, known = records(options.keys, {})
    secrets = [one.decode() for one in known]
    async with scene(options.counts, before=stored) as up:
        clients = [httpx.AsyncClient(base_url=url, timeout=30) for url in up.http]
        loading = asyncio.create_task(load(up, clients, secrets[0]))
        try:
            found = await changes(up, clients, secrets, options.changes)
            if loading.done():
                loading.result()
        finally:
            loading.cancel()
            with suppress(asyncio.CancelledError):
                await loading
            for client in clients:
                await client.aclose()
    return found


async def changes(
    up: Scene, clients: list[httpx.AsyncClient], secrets: list[str], count: int
) -> dict[str, Any]:
    table = Table(
        ("change", "<14"), ("of", "4"), ("ms p50", "7.0f"), ("p99", "7.0f"), ("longest", "7.0f")
    )
    found: dict[str, Any] = {}
    for first, name in ((1, "key revoked"), (1 + count, "limit set")):
        seconds = []
        for number in range(first, first + count):
            ident, secret = f"key_{number:016x}", secrets[number]
            if name == "key revoked":
                change: Awaitable[Any] = up.admin.revoke_key(ident)

                async def ask(client: httpx.AsyncClient, secret: str = secret) -> int:
                    return await list_models(secret, client)

                seconds.append(await in_force(clients, ask, change, 401))
            else:
                change = up.admin.update_key(ident, context_tokens=CONTEXT_TOKENS)

                async def ask(client: httpx.AsyncClient, secret: str = secret) -> int:
                    return await complete(secret, up.model, client)

                seconds.append(await in_force(clients, ask, change, 400))
        row = [percentile(seconds, 50) * 1e3, percentile(seconds, 99) * 1e3, max(seconds) * 1e3]
        table.row(name, count, *row)
        found[name] = {"p50_ms": row[0], "p99_ms": row[1], "max_ms": row[2]}
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--keys", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--changes", type=int, default=100, help="changes per kind; default: 100")
    add_counts(parser, COUNTS)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--keys 100 --changes 2 --counts 1,1,1,1,2")
