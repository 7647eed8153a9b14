"""Keys, limits and usage during an outage of all stores: `python -m bench.tenancy.outage`.

Starts etcd, Postgres, a Kafka broker, two routers, four frontends with a spool and two workers with
the simulated engine. One tenant sends less than its limit, another four times its limit, each to
all frontends. Then etcd and the broker stop responding (SIGSTOP) and Postgres is killed, for a
minute; with `--how kill` etcd is killed too. Both come back with their data. Prints, for the time
before, during and after the outage, the responses to the tenant within its limit, and the admitted
share of the other one's limit, which had been exhausted before. At the end the frontends stop, and
the usage records in files, Postgres and Kafka are compared with the responses that clients
received.

`copies` are records that arrived more than once with the same id: files and Kafka may contain some,
and readers recognize them by the id. `doubled` are two records of one request.
"""

import argparse
import asyncio
import itertools
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from baton.postgres.connecting import connected
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalDatabase
from baton.settings import StateSettings
from baton.tenancy.records.tenants import Tier
from baton.usage.record import UsageRecord, decode
from baton.usage.report.files import RecordFiles, files_of
from bench.harness import cli
from bench.harness.broker import TOPIC, Broker, messages
from bench.harness.fleet import add_counts
from bench.harness.table import Table
from bench.tenancy.scene import COUNTS, Scene, scene

WITHIN, OVER = "within", "over"
PER_SECOND = {WITHIN: 12.0, OVER: 32.0}
LIMITS = {WITHIN: 30, OVER: 8}
"""Limits in requests per second."""
AT_ONCE = 32
OUTPUT_TOKENS = 3
REFUSED = 429
SETTINGS = {
    "BATON_USAGE_SPOOL_PATH": "{directory}/spool",
    "BATON_USAGE_JSONL_PATH": "{directory}/records",
    "BATON_USAGE_KAFKA_TOPIC": TOPIC,
}
FLUSH_SECONDS = 60.0
"""Time for frontends to deliver the records that the stores missed."""
Told = tuple[int, int]
"""Prompt and output tokens."""
Row = tuple[str, int, int]
"""A request, and its prompt and output tokens."""


@dataclass
class Seen:
    """Results of a tenant's clients in one phase."""

    began: float = 0.0
    seconds: float = 0.0
    statuses: Counter[int] = field(default_factory=Counter)
    """Statuses of responses; 0: no response."""
    slowest: float = 0.0


class Clients:
    """Sends requests to all frontends with one tenant's key, and keeps the responses."""

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
        """The usage reported to clients, by request id."""
        self.seen = Seen()

    async def ask(self) -> int:
        """Send a request to one frontend; return the status of the response, 0 for none."""
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
        """Return once the limit is exhausted: requests are rejected."""
        while REFUSED not in await asyncio.gather(*(self.ask() for _ in range(AT_ONCE))):
            pass

    async def offer(self, per_second: float) -> None:
        """Send requests at random times, without waiting for responses, until cancelled."""
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


@dataclass
class Stores:
    """Services that frontends depend on, and can do without for a while."""

    postgres: LocalDatabase
    broker: Broker
    files: Path

    async def wait_delivered(self, told: Mapping[str, Told]) -> None:
        """Return once Postgres has as many records as clients have responses, or after a while."""
        state = StateSettings(url=SecretStr(self.postgres.url))
        with suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS), connected(state) as connection:
                while await connection.fetchval("select count(*) from usage_records") < len(told):
                    await asyncio.sleep(0.5)

    async def records(self, told: Mapping[str, Told]) -> dict[str, tuple[list[Row], int]]:
        """Return the records of each store, by their ids, and the number of copies."""
        state = StateSettings(url=SecretStr(self.postgres.url))
        async with connected(state) as connection:
            rows = await connection.fetch(
                "select request_id, prompt_tokens, output_tokens from usage_records "
                "where outcome = 'ok'"
            )
        files = RecordFiles(files_of(self.files))
        found = await messages(self.broker.address, len(told))
        sent = [decode(message.value()) for message in found]
        logged = {record.id: record for record in sent}
        return {
            "files": ([row_of(one) for one in files if one.outcome == "ok"], files.doubles),
            "Postgres": ([tuple(row) for row in rows], 0),
            "Kafka": (
                [row_of(one) for one in logged.values() if one.outcome == "ok"],
                len(sent) - len(logged),
            ),
        }


def row_of(record: UsageRecord) -> Row:
    return record.request_id, record.prompt_tokens, record.output_tokens or 0


@asynccontextmanager
async def away(up: Scene, stores: Stores, how: str) -> AsyncIterator[None]:
    """Stop all stores until the block exits."""
    pid = up.local.pid
    assert pid is not None
    await stores.postgres.kill()
    stores.broker.freeze()
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
        stores.broker.thaw()
        await stores.postgres.start()


@asynccontextmanager
async def running_stores() -> AsyncIterator[tuple[LocalDatabase, Broker]]:
    with tempfile.TemporaryDirectory() as name:
        directory, broker = Path(name) / "postgres", Broker()
        try:
            async with LocalDatabase(directory) as postgres:
                await broker.start()
                yield postgres, broker
        finally:
            await broker.kill()
            remove_data(directory)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    print(f"load average {os.getloadavg()[0]:.1f}, etcd away by {options.how}")
    found: dict[str, Any] = {"phases": []}
    async with running_stores() as (postgres, broker):
        settings = {
            **SETTINGS,
            "BATON_STATE_URL": postgres.url,
            "BATON_USAGE_KAFKA_BROKERS": broker.address,
        }
        async with scene(options.counts, settings) as up:
            stores = Stores(postgres, broker, up.directory / "records")
            told = await load(up, stores, options, found["phases"].append)
            await stores.wait_delivered(told)
            await asyncio.gather(*(up.fleet.terminate(one.id) for one in up.fleet.frontends))
            found["usage"] = compare(told, await stores.records(told))
    return found


async def load(
    up: Scene,
    stores: Stores,
    options: argparse.Namespace,
    add: Callable[[dict[str, Any]], None],
) -> dict[str, Told]:
    """Run the phases; return the usage reported to clients, by request."""
    tenants = {}
    for name, limit in LIMITS.items():
        await up.admin.create_tenant(
            name, Tier.PRO, requests_per_minute=round(60 * limit * options.share)
        )
        _, secret = await up.admin.create_key(await up.admin.find_project(name, "default"))
        tenants[name] = Clients(up, name, secret)
    await asyncio.sleep(2)  # until all frontends know the keys, and buckets fill
    await tenants[OVER].use_up()
    loading = [
        asyncio.create_task(clients.offer(PER_SECOND[name] * options.share))
        for name, clients in tenants.items()
    ]
    try:
        await phases(up, stores, tenants, options, add)
    finally:
        for task in loading:
            task.cancel()
        await asyncio.wait(loading)
        for clients in tenants.values():
            await clients.close()
    return {ident: one for clients in tenants.values() for ident, one in clients.told.items()}


async def phases(
    up: Scene,
    stores: Stores,
    tenants: dict[str, Clients],
    options: argparse.Namespace,
    add: Callable[[dict[str, Any]], None],
) -> None:
    table = Table(
        ("stores", "<10"),
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
        row["admitted_percent"] = row[OVER] / (LIMITS[OVER] * options.share * took) * 100
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
        async with away(up, stores, options.how):
            await asyncio.sleep(seconds)

    await phase("there", options.around, asyncio.sleep)
    await phase("away", options.seconds, lost)
    await phase("back", options.around, asyncio.sleep)


def compare(
    told: Mapping[str, Told], records: Mapping[str, tuple[list[Row], int]]
) -> list[dict[str, Any]]:
    """Print the differences between usage records and clients' usage; return them."""
    table = Table(
        ("usage in", "<10"),
        ("answers", "7"),
        ("records", "7"),
        ("lost", "6"),
        ("doubled", "7"),
        ("differ", "6"),
        ("copies", "6"),
        ("tokens told", "11"),
        ("recorded", "9"),
    )
    found = []
    for where, (rows, copies) in records.items():
        used = {ident: (prompt, output) for ident, prompt, output in rows}
        row = {
            "answers": len(told),
            "records": len(rows),
            "lost": len(told.keys() - used.keys()),
            "doubled": len(rows) - len(used),
            "differ": sum(used.get(ident, one) != one for ident, one in told.items()),
            "copies": copies,
            "tokens_told": sum(map(sum, told.values())),
            "tokens_recorded": sum(prompt + output for _, prompt, output in rows),
        }
        table.row(where, *row.values())
        found.append({"where": where, **row})
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="seconds of the outage; default: 60"
    )
    help_ = "seconds of load before and after the outage; default: 10"
    parser.add_argument("--around", type=float, default=10.0, help=help_)
    parser.add_argument(
        "--share", type=float, default=1.0, help="share of load and limits; default: 1"
    )
    add_counts(parser, COUNTS)
    help_ = "SIGSTOP, or kill and restart etcd; default: stop"
    parser.add_argument("--how", choices=("stop", "kill"), default="stop", help=help_)


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        smallest="--seconds 2 --around 1 --share 0.25 --counts 1,1,1,1,2",
    )
