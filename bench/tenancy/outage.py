"""Keys, limits and usage while etcd is away: `python -m bench.tenancy.outage`.

Starts etcd, two routers, four frontends with a spool and two workers with the simulated engine.
One tenant asks for less than its limit, one for four times its limit, each of all frontends. Then
etcd stops answering (SIGSTOP, or killed and started again with its data) for a minute. Printed is,
for the time before, meanwhile and after: what the tenant within its limit was answered, and what
was admitted of the other one's limit, which had been used up before. At the end frontends are
stopped, and their usage records compared with the answers that clients had, by request.
"""

import argparse
import asyncio
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from baton.tenancy.records import Tier
from baton.usage.report.files import RecordFiles, files_of
from bench.harness import cli
from bench.harness.table import Table
from bench.tenancy.scene import Scene, scene

WITHIN, OVER = "within", "over"
PER_SECOND = {WITHIN: 12.0, OVER: 32.0}
LIMITS = {WITHIN: 30, OVER: 8}
"""Requests per second."""
AROUND_SECONDS = 10.0
"""Of load before etcd goes away, and after it is back."""
AT_ONCE = 32
OUTPUT_TOKENS = 3
REFUSED = 429
SETTINGS = {
    "BATON_USAGE_SPOOL_PATH": "{directory}/spool",
    "BATON_USAGE_JSONL_PATH": "{directory}/records",
}
Told = tuple[int, int]
"""Prompt and output tokens."""


@dataclass
class Seen:
    """What clients of a tenant saw in one phase."""

    began: float = 0.0
    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    """0: no answer."""
    slowest: float = 0.0


class Clients:
    """Asks all frontends with one tenant's key, and keeps what was answered."""

    def __init__(self, up: Scene, tenant: str, secret: str) -> None:
        self._tenant = tenant
        self._model = up.model
        headers = {"authorization": f"Bearer {secret}"}
        limits = httpx.Limits(max_connections=None)
        self._clients = [
            httpx.AsyncClient(base_url=url, headers=headers, timeout=30, limits=limits)
            for url in up.http
        ]
        self._numbers = itertools.count()
        self.told: dict[str, Told] = {}
        """By request id, what clients were told that they used."""
        self.seen = Seen()

    async def ask(self) -> int:
        """Ask one frontend; return the status of its answer, 0 if there was none."""
        ident = f"{self._tenant}-{next(self._numbers)}"
        body = {
            "model": self._model,
            "prompt": [random.randrange(3, 250) for _ in range(random.randint(8, 32))],
            "max_tokens": random.randint(1, OUTPUT_TOKENS),
            "ignore_eos": True,
        }
        seen, began = self.seen, time.monotonic()
        try:
            answer = await random.choice(self._clients).post(
                "/v1/completions", json=body, headers={"x-request-id": ident}
            )
            status = answer.status_code
        except httpx.TransportError:
            status = 0
        if status == 200:
            usage = answer.json()["usage"]
            self.told[ident] = usage["prompt_tokens"], usage["completion_tokens"]
        seen.statuses[status] += 1
        if status != REFUSED:
            seen.slowest = max(seen.slowest, time.monotonic() - began)
        return status

    async def use_up(self) -> None:
        """Return once the limit is used up: requests are refused."""
        while REFUSED not in await asyncio.gather(*(self.ask() for _ in range(AT_ONCE))):
            pass

    async def offer(self, per_second: float) -> None:
        """Ask at random times, without waiting for answers, until cancelled."""
        running: set[asyncio.Task[int]] = set()
        try:
            while True:
                await asyncio.sleep(random.expovariate(per_second))
                task = asyncio.create_task(self.ask())
                running.add(task)
                task.add_done_callback(running.discard)
        finally:
            await asyncio.gather(*running)

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def away(up: Scene, how: str) -> AsyncIterator[None]:
    """Let etcd be away until the block ends."""
    pid = up.local.pid
    assert pid is not None
    if how == "kill":
        await up.local.kill()
    else:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        if how == "kill":
            await up.local.start()
        else:
            os.kill(pid, signal.SIGCONT)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    print(f"load average {os.getloadavg()[0]:.1f}, etcd away by {options.how}")
    found: dict[str, Any] = {"phases": []}
    async with scene(settings=SETTINGS) as up:
        tenants = {}
        for name, limit in LIMITS.items():
            await up.admin.create_tenant(name, Tier.PRO, requests_per_minute=60 * limit)
            _, secret = await up.admin.create_key(await up.admin.find_project(name, "default"))
            tenants[name] = Clients(up, name, secret)
        await asyncio.sleep(2)  # until all frontends know the keys, and buckets fill
        await tenants[OVER].use_up()
        loading = [
            asyncio.create_task(clients.offer(PER_SECOND[name]))
            for name, clients in tenants.items()
        ]
        try:
            await phases(up, tenants, options, found["phases"].append)
        finally:
            for task in loading:
                task.cancel()
            await asyncio.wait(loading)
            for clients in tenants.values():
                await clients.close()
        await asyncio.gather(*(up.fleet.terminate(one.id) for one in up.fleet.frontends))
        told = {ident: one for clients in tenants.values() for ident, one in clients.told.items()}
        found["usage"] = compare(told, RecordFiles(files_of(up.directory / "records")))
    return found


async def phases(
    up: Scene,
    tenants: dict[str, Clients],
    options: argparse.Namespace,
    add: Callable[[dict[str, Any]], None],
) -> None:
    table = Table(
        ("etcd", "<10"),
        ("s", "5.1f"),
        ("within: answered", "16"),
        ("failed", "6"),
        ("slowest ms", "10.0f"),
        ("over: admitted", "14"),
        ("of its limit %", "14.1f"),
        ("failed", "6"),
    )

    async def phase(name: str, seconds: float, block: Callable[[float], Awaitable[None]]) -> None:
        began = time.monotonic()
        for clients in tenants.values():
            clients.seen = Seen()
        await block(seconds)
        took = time.monotonic() - began
        row: dict[str, Any] = {"phase": name, "seconds": took}
        for tenant, clients in tenants.items():
            seen = clients.seen
            row[tenant] = seen.statuses[200]
            row[f"{tenant}_failed"] = sum(
                count
                for status, count in seen.statuses.items()
                if status != 200 and not (status == REFUSED and tenant == OVER)
            )
            row[f"{tenant}_slowest_ms"] = seen.slowest * 1e3
        row["admitted_percent"] = row[OVER] / (LIMITS[OVER] * took) * 100
        table.row(
            name,
            took,
            row[WITHIN],
            row[f"{WITHIN}_failed"],
            row[f"{WITHIN}_slowest_ms"],
            row[OVER],
            row["admitted_percent"],
            row[f"{OVER}_failed"],
        )
        add(row)

    async def lost(seconds: float) -> None:
        async with away(up, options.how):
            await asyncio.sleep(seconds)

    await phase("there", AROUND_SECONDS, asyncio.sleep)
    await phase("away", options.seconds, lost)
    await phase("back", AROUND_SECONDS, asyncio.sleep)


def compare(told: dict[str, Told], records: RecordFiles) -> dict[str, int]:
    """Print how usage records differ from what clients were told; return it."""
    ended = [record for record in records if record.outcome == "ok"]
    copies = records.doubles
    by_request = Counter(record.request_id for record in ended)
    used = {one.request_id: (one.prompt_tokens, one.output_tokens or 0) for one in ended}
    found = {
        "answers": len(told),
        "records": len(ended),
        "lost": len(told.keys() - used.keys()),
        "doubled": sum(count - 1 for count in by_request.values()),
        "copies": copies,
        "differ": sum(used.get(ident, one) != one for ident, one in told.items()),
        "tokens_told": sum(map(sum, told.values())),
        "tokens_recorded": sum(map(sum, used.values())),
    }
    print("usage: " + ", ".join(f"{name} {count}" for name, count in found.items()))
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=float, default=60.0, help="that it is away; default: 60")
    help_ = "SIGSTOP, or killed and started again; default: stop"
    parser.add_argument("--how", choices=("stop", "kill"), default="stop", help=help_)


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments)
