"""How exactly real frontends hold one budget: `python -m bench.limits.budgets`.

Starts etcd, two routers, four frontends and two workers with the simulated engine. Each load is 200
requests in one moment, over all frontends, of a tenant whose budget is for exactly 50 of them;
then every request that was told to come back does so until all are refused for good. Once the
key and the project have the same budget, too; then the router that owns the budget is killed in
the middle. Last, after 25 of them ran, etcd stops answering (SIGSTOP), and the others ask
meanwhile, in ten turns, and in an eleventh once it is back. Prints how many ran at once and in all,
and what was spent of the budget, which is read from etcd; the last column is the budget less what
clients were told that they used.
"""

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.cluster.rendezvous import choose
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, Instance
from baton.telemetry import logs
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.budget.month import month_of
from baton.tenancy.limits.spec import BUDGET, LimitId, Measure, Subject
from baton.tenancy.records.tenants import Tier
from bench.faults.setup import MODEL, cluster_settings
from bench.harness import cli
from bench.harness.fleet import Fleet, add_counts
from bench.harness.table import Table

CLUSTER = "local"
COUNTS = {"kvstore": 1, "router": 2, "prefill": 1, "decode": 1, "frontend": 4}
PROMPT, OUTPUT_TOKENS = list(range(3, 15)), 8
PRICES = f"{MODEL.name}=1/5"
COST = len(PROMPT) * 1000 + OUTPUT_TOKENS * 5000
"""Of one request, in nano-dollars; whatever it may cost it costs."""
KILL_SECONDS = 0.05
RECORDED_SECONDS = 5.0
TURNS = 10


@dataclass(frozen=True)
class Outcome:
    """What came of one load."""

    load: str
    at_once: int
    """Requests that ran of the first 200, or by the time that etcd came back."""
    admitted: int
    """In all."""
    spent: int
    """Nano-dollars, as etcd has it."""
    charged: int
    missing: int
    """Of the budget: what no client was told to have used."""
    others: dict[str, int]


class Clients:
    """Asks frontends in turn, with one key."""

    def __init__(self, http: httpx.AsyncClient, urls: Sequence[str], secret: str) -> None:
        self._http = http
        self._urls = urls
        self._headers = {"authorization": f"Bearer {secret}"}
        self.used = 0
        self.others: Counter[str] = Counter()

    async def ask(self, number: int) -> str:
        """Return `ran`, `later` or `never`, or what else came of it."""
        body = {
            "model": MODEL.name,
            "prompt": PROMPT,
            "max_tokens": OUTPUT_TOKENS,
            "ignore_eos": True,
        }
        url = f"{self._urls[number % len(self._urls)]}/v1/completions"
        answer = await self._http.post(url, json=body, headers=self._headers)
        if answer.status_code == 200:
            usage = answer.json()["usage"]
            self.used += usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 5000
            return "ran"
        if answer.status_code == 429:
            return "never" if answer.headers.get("x-should-retry") == "false" else "later"
        self.others[answer.json()["error"]["code"]] += 1
        return "later" if "retry-after" in answer.headers else "other"

    async def known(self) -> None:
        """Return once every frontend knows the key."""
        for url in self._urls:
            while (await self._models(url)) != 200:
                await asyncio.sleep(0.05)

    async def _models(self, url: str) -> int:
        return (await self._http.get(f"{url}/v1/models", headers=self._headers)).status_code


async def owner(etcd: Etcd, limit_id: LimitId) -> str:
    """Return the instance id of the router that owns a budget."""
    pairs, _ = await etcd.list(*keys.members_range(CLUSTER))
    instances = [
        keys.decode(Instance, value)
        for key, value in pairs
        if key.startswith(keys.instances(CLUSTER))
    ]
    routers = {one.incarnation: one.id for one in instances if one.role == ROLE_ROUTER}
    return routers[choose(limit_id.digest(), routers)]


async def load(
    fleet: Fleet,
    etcd: Etcd,
    http: httpx.AsyncClient,
    options: argparse.Namespace,
    name: str,
    subjects: Sequence[Subject],
    *,
    kills: bool,
) -> Outcome:
    admin, budget = Administration(etcd, CLUSTER), options.fit * COST
    tenant = f"tenant-{name.replace(' ', '-').replace(',', '')}"
    limits = {subject: {BUDGET: budget} if subject in subjects else {} for subject in Subject}
    await admin.create_tenant(tenant, Tier.PRO, **limits[Subject.TENANT])
    project = await admin.create_project(tenant, "search", **limits[Subject.PROJECT])
    _, secret = await admin.create_key(project, **limits[Subject.KEY])
    urls = [f"http://127.0.0.1:{one.http_port}" for one in fleet.frontends]
    clients = Clients(http, urls, secret)
    await clients.known()
    first = [asyncio.create_task(clients.ask(number)) for number in range(options.requests)]
    if kills:
        limit_id = LimitId(Subject.TENANT, tenant, Measure.COST, month_of(time.time()))
        await asyncio.sleep(KILL_SECONDS)
        fleet.kill(await owner(etcd, limit_id))
    ends = Counter(await asyncio.gather(*first))
    at_once = ends["ran"]
    while ends["later"]:
        again, ends["later"] = ends["later"], 0
        await asyncio.sleep(0.5)
        ends += Counter(await asyncio.gather(*map(clients.ask, range(again))))
    return await outcome(name, admin, tenant, clients, at_once, ends["ran"], budget)


async def etcd_away(
    fleet: Fleet, local: LocalEtcd, etcd: Etcd, http: httpx.AsyncClient, options: argparse.Namespace
) -> Outcome:
    """Spend the second half of a budget while etcd does not answer."""
    admin, budget, tenant = Administration(etcd, CLUSTER), options.fit * COST, "tenant-etcd"
    await admin.create_tenant(tenant, Tier.PRO, **{BUDGET: budget})
    _, secret = await admin.create_key(await admin.find_project(tenant, "default"))
    clients = Clients(
        http, [f"http://127.0.0.1:{one.http_port}" for one in fleet.frontends], secret
    )
    await clients.known()
    first = Counter(await asyncio.gather(*map(clients.ask, range(options.fit // 2))))
    pid, turn = local.pid, (options.requests - options.fit // 2) // (TURNS + 1)
    if pid is None:
        raise RuntimeError("etcd does not run")
    os.kill(pid, signal.SIGSTOP)
    try:
        began, ends = time.monotonic(), first
        for number in range(TURNS):
            await asyncio.sleep(began + number * options.away / TURNS - time.monotonic())
            ends += Counter(await asyncio.gather(*map(clients.ask, range(turn))))
        await asyncio.sleep(began + options.away - time.monotonic())
    finally:
        os.kill(pid, signal.SIGCONT)
    meanwhile = ends["ran"]
    await asyncio.sleep(1.0)
    ends += Counter(await asyncio.gather(*map(clients.ask, range(turn))))
    return await outcome(
        "tenant, etcd away", admin, tenant, clients, meanwhile, ends["ran"], budget
    )


async def outcome(
    name: str,
    admin: Administration,
    tenant: str,
    clients: Clients,
    at_once: int,
    admitted: int,
    budget: int,
) -> Outcome:
    """Return what came of a load, once etcd has all of it."""
    spent = await admin.spending.of(Subject.TENANT, tenant)
    until = time.monotonic() + RECORDED_SECONDS
    while (spent.spent != budget or spent.reserved) and time.monotonic() < until:
        await asyncio.sleep(0.1)
        spent = await admin.spending.of(Subject.TENANT, tenant)
    return Outcome(
        name,
        at_once,
        admitted,
        spent.spent,
        spent.spent + spent.reserved,
        budget - clients.used,
        dict(clients.others),
    )


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    logs.configure("bench", "bench", "warning")
    table = Table(
        ("load", "<22"),
        ("ran at once", "11"),
        ("ran in all", "10"),
        ("spent, nano-dollars", "19"),
        ("charged", "10"),
        ("missing", "7"),
    )
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "etcd").mkdir()
        async with (
            LocalEtcd(directory / "etcd") as local,
            Etcd(local.endpoints) as etcd,
        ):
            settings = {
                **cluster_settings("sim", "float64"),
                "BATON_AUTH_MODE": "keys",
                "BATON_USAGE_PRICES": PRICES,
            }
            fleet = Fleet(directory, local, settings, options.counts, {})
            try:
                await fleet.start(*fleet.members)
                await fleet.wait_ready()
                bounds = httpx.Limits(max_connections=400)
                for load_name, subjects, kills in (
                    ("tenant", (Subject.TENANT,), False),
                    ("tenant, project, key", tuple(Subject), False),
                    ("tenant, owner killed", (Subject.TENANT,), True),
                ):
                    async with httpx.AsyncClient(timeout=60, limits=bounds) as http:
                        one = await load(
                            fleet, etcd, http, options, load_name, subjects, kills=kills
                        )
                    table.row(
                        one.load, one.at_once, one.admitted, one.spent, one.charged, one.missing
                    )
                    if one.others:
                        print(f"  other answers: {one.others}")
                    found.append(asdict(one))
                async with httpx.AsyncClient(timeout=60, limits=bounds) as http:
                    one = await etcd_away(fleet, local, etcd, http, options)
                table.row(one.load, one.at_once, one.admitted, one.spent, one.charged, one.missing)
                if one.others:
                    print(f"  other answers: {one.others}")
                found.append(asdict(one))
            finally:
                await fleet.stop()
    return found


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--requests", type=int, default=200, help="in one moment; default: 200")
    parser.add_argument("--fit", type=int, default=50, help="into the budget; default: 50")
    parser.add_argument("--away", type=float, default=60.0, help="seconds of etcd; default: 60")
    add_counts(parser, COUNTS)


if __name__ == "__main__":
    cli.main(
        measure, __doc__, arguments, smallest="--requests 12 --fit 4 --away 1 --counts 1,2,1,1,2"
    )
