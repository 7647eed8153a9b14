"""Whether usage is counted exactly once: `python -m bench.usage.exactly_once`.

Starts three frontends that require keys and share a spool, workers with the simulated engine, a
Postgres and a Kafka broker behind a proxy. Clients send requests over HTTP and gRPC: streamed and
not, n = 1 and 2, chat and completions of several prompts. Some disconnect, some have a short
deadline, and some of the requests are rejected. Meanwhile frontends are killed and restarted, also
while they start. Postgres is killed, or frozen for longer than a statement may take. The broker is
frozen for longer than a batch may take, its connections are reset, or nothing reaches it.

Then the rows of Postgres and the messages of the topic, without copies of the same id, are compared
with the usage reported to each client, exact to the token and to the nano-dollar. The exit code is
1 if anything differs, if a spool is not empty, or if a kind of fault did not happen or affected
nothing.

The broker keeps messages in memory and is therefore not killed: Baton cannot restore messages that
a broker has acknowledged and lost.
"""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from baton.cluster.etcd.local import free_port
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalDatabase
from baton.request.prices import Price, PriceTable
from baton.settings import StateSettings
from baton.tenancy.records.tenants import Tier
from bench.harness import cli
from bench.harness.broker import TOPIC, Broker
from bench.harness.child import Helper, helper, log_path
from bench.harness.fleet import total
from bench.tenancy.scene import Scene, scene
from bench.usage.exactly_once.asks import Asks
from bench.usage.exactly_once.clients import Clients, Seen
from bench.usage.exactly_once.faults import KAFKA, Faults, Load
from bench.usage.exactly_once.report import report
from bench.usage.exactly_once.sources import log_of, rows_of
from bench.usage.exactly_once.verdict import By, judge

COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 1, "frontend": 3}
TIERS = {"acme": Tier.PRO, "globex": Tier.ENTERPRISE}
PROJECTS = ("search", "support")
KEYS_EACH = 2
AT_ONCE = 24
MOST_PER_SECOND = 60.0
LEAST_SECONDS = 20.0
"""Least seconds of load, as faults take their time."""
DRAIN_SECONDS = 90.0
SHOWN = 20
PRICES = {
    "baton-tiny": "0.10/0.025/0.40",
    "baton-tiny@enterprise": "0.083/0.021/0.321",
}
TROUBLE = (
    b"usage.record.refused",
    b"spool.log.damaged",
    b"spool.log.full",
    b"spool.log.not_read",
)
"""Events in a frontend's log that no fault here explains."""


class Run:
    """One run: its clients and its results."""

    def __init__(self, up: Scene, draw: random.Random) -> None:
        self.up = up
        self.draw = draw
        self.load = Load()
        self.seen: list[Seen] = []
        self.who: dict[int, By] = {}
        self._secrets: list[str] = []
        self._clients: dict[str, Clients] = {}

    async def prepare(self, limit_per_minute: int) -> None:
        """Create tenants, projects and keys, and connect."""
        admin, limited = self.up.admin, []
        for tenant, tier in TIERS.items():
            await admin.create_tenant(tenant, tier)
            for name in PROJECTS:
                project = await admin.create_project(tenant, name)
                for _ in range(KEYS_EACH):
                    key, secret = await admin.create_key(project)
                    self.who[len(self._secrets)] = tenant, project.id, key.id
                    self._secrets.append(secret)
            project = await admin.find_project(tenant, "default")
            key, secret = await admin.create_key(project, requests_per_minute=limit_per_minute)
            limited.append(((tenant, project.id, key.id), secret))
        for by, secret in limited:
            self.who[len(self._secrets)] = by
            self._secrets.append(secret)
        self._secrets.append("sk-baton-" + "A" * 43)  # an unknown key
        self.who[len(self._secrets) - 1] = next(iter(self.who.values()))
        for one in self.up.fleet.frontends:
            http = f"http://127.0.0.1:{one.http_port}"
            self._clients[one.id] = Clients(f"127.0.0.1:{one.grpc_port}", http, self._secrets)
        await asyncio.sleep(2)  # until all frontends know the keys

    async def ask(self, requests: int, faults: Faults) -> None:
        """Let clients send a number of requests."""
        ordinary = len(self._secrets) - len(TIERS) - 1
        asks = Asks(random.Random(self.draw.randrange(2**32)), ordinary)
        numbers = iter(range(requests))
        began = time.monotonic()
        per_second = min(MOST_PER_SECOND, requests / LEAST_SECONDS)

        async def client() -> None:
            for number in numbers:
                await asyncio.sleep(began + number / per_second - time.monotonic())
                ask = asks.next(number)
                if ask.kind == "limit":
                    ask = replace(ask, key=ordinary + number % len(TIERS))
                elif ask.kind == "unknown key":
                    ask = replace(ask, key=len(self._secrets) - 1)
                name = self.draw.choice(sorted(faults.ready))
                frontend = name, self.up.fleet[name].starts
                seen = Seen(ask, frontend)
                self.seen.append(seen)
                self.load.begun += 1
                self.load.running[frontend] += 1
                try:
                    await self._clients[name].ask(seen, ask.key)
                finally:
                    self.load.running[frontend] -= 1
                self.load.told += seen.told is not None

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(client())

    async def close(self) -> None:
        """Close all connections."""
        await asyncio.gather(*(one.close() for one in self._clients.values()))


async def drained(up: Scene) -> float:
    """Return the seconds until sinks have all records and spools of killed frontends are gone."""
    began, spool = time.monotonic(), up.directory / "spool"
    while time.monotonic() - began < DRAIN_SECONDS:
        shown = await asyncio.gather(*(one.metrics() for one in up.fleet.frontends))
        oldest = "baton_usage_sink_oldest_record_timestamp_seconds"
        waiting = sum(total(one, oldest) for one in shown)
        if not waiting and len(runs(spool)) == len(up.fleet.frontends):
            break
        await asyncio.sleep(0.2)
    return time.monotonic() - began


def runs(spool: Path) -> list[str]:
    """Return the runs left in a spool."""
    return [one.name for one in spool.iterdir() if one.is_dir()]


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    seed = options.seed if options.seed is not None else random.randrange(2**32)
    print(f"seed {seed}, {options.requests} requests, load average {os.getloadavg()[0]:.1f}")
    draw, port = random.Random(seed), free_port()
    broker = Broker()
    broker.advertised = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "postgres"
        try:
            async with (
                LocalDatabase(directory) as postgres,
                helper("bench.faults.proxy", str(draw.randrange(2**32))) as proxies,
            ):
                own_port = int(broker.address.rpartition(":")[2])
                await proxies.ask({"listen": {KAFKA: (port, own_port)}})
                await broker.start()
                try:
                    found, problems = await run(options, draw, postgres, broker, proxies)
                finally:
                    await broker.kill()
        finally:
            remove_data(directory)
    for problem in problems[:SHOWN]:
        print(problem)
    print(f"{len(problems)} differences" if problems else "no difference")
    found |= {"seed": seed, "problems": problems}
    if problems:
        cli.write(options, found)
        sys.exit(1)
    return found


async def run(
    options: argparse.Namespace,
    draw: random.Random,
    postgres: LocalDatabase,
    broker: Broker,
    proxies: Helper,
) -> tuple[dict[str, Any], list[str]]:
    """Return the counts, and what is wrong."""
    settings = {
        "BATON_USAGE_SPOOL_PATH": "{directory}/spool",
        # This setting is for ends that are sent without a record, which are not tested here.
        "BATON_USAGE_STALL_SECONDS": "30",
        "BATON_USAGE_KAFKA_BROKERS": broker.advertised,
        "BATON_USAGE_KAFKA_TOPIC": TOPIC,
        "BATON_USAGE_KAFKA_TIMEOUT_SECONDS": "2",
        "BATON_USAGE_PRICES": ",".join(f"{name}={one}" for name, one in PRICES.items()),
        "BATON_STATE_URL": postgres.url,
        "BATON_STATE_STATEMENT_SECONDS": "2",
        "BATON_ENGINE_SIM_DECODE_STEP_SECONDS": "0.004",
        "BATON_ENGINE_MAX_RUNNING": "64",
    }
    logs = {f"frontend-{number}": log_path(f"fleet-frontend-{number}") for number in range(3)}
    lengths = {name: path.stat().st_size if path.exists() else 0 for name, path in logs.items()}
    problems: list[str] = []
    async with scene(COUNTS, settings) as up:
        one = Run(up, draw)
        own = random.Random(draw.randrange(2**32))
        faults = Faults(up.fleet, postgres, broker, proxies, one.load, own)
        await one.prepare(options.limit)
        began = time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(faults.run(options.requests))
                group.create_task(one.ask(options.requests, faults))
        finally:
            await one.close()
        seconds = time.monotonic() - began
        drain = await drained(up)
        await asyncio.gather(*(up.fleet.terminate(name) for name in logs))
        left = runs(up.directory / "spool")
    problems += [f"the spool of {name} is not empty" for name in left]
    for name, path in logs.items():
        with path.open("rb") as log:
            log.seek(lengths[name])
            text = log.read()
        problems += [f"{name} says {part.decode()}" for part in TROUBLE if part in text]
    rows = await rows_of(StateSettings(url=SecretStr(postgres.url)))
    records, messages, differ = await log_of(broker.advertised, len(rows))
    problems += differ
    only = {one.id: one for one in rows}.items() ^ {one.id: one for one in records}.items()
    problems += [f"{ident}: Postgres and the log differ" for ident in dict(only)]
    prices = PriceTable({name: Price.parse(text) for name, text in PRICES.items()})
    tiers = {name: str(tier) for name, tier in TIERS.items()}
    verdicts = {
        name: judge(found, one.seen, one.who, tiers, prices, faults.killed)
        for name, found in (("Postgres", rows), ("the log", records))
    }
    problems += [f"{name}: {text}" for name, found in verdicts.items() for text in found.problems]
    problems += [f"{kind}: hit nothing" for kind, done in faults.done.items() if not done.hits]
    if not any(seen.ask.kind == "limit" and seen.refused for seen in one.seen):
        problems.append("no limit refused anything")
    counts = {
        "rows": len(rows),
        "messages": messages,
        "copies": messages - len(records),
        "load seconds": round(seconds),
        "drained after seconds": round(drain),
    }
    return report(one.seen, faults, verdicts, counts), problems


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=5000, help="default: 5000")
    parser.add_argument("--limit", type=int, default=20, help="requests per minute of limited keys")
    parser.add_argument("--seed", type=int, help="seed of all random choices; default: random")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--requests 400 --limit 3 --seed 1")
