"""The drill of docs/backup.md: back up under load, lose etcd, restart, restore: all is there."""

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from baton.backup.reader import Backup
from baton.backup.restore import Restore
from baton.backup.sealing import KeyDerivation
from baton.backup.snapshot import back_up
from baton.backup.usage_since import UsageSince
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.host.ports import held_port
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.limits.spec import Subject
from baton.tenancy.records.tenants import Tier
from baton.usage.record import UsageRecord
from baton.usage.report.files import RecordFiles, files_of
from tests.support.clock import within
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster, Shape
from tests.support.wait import eventually

PASSPHRASE = b"correct horse battery"
TENANTS = ("acme", "other")
PROMPT = "what was asked before etcd was lost is found again, if the salt is the same " * 4
CLIENTS, BACKUPS = 3, 3


@pytest.fixture
async def own_etcd(tmp_path: Path) -> AsyncIterator[LocalEtcd]:
    with held_port() as port:
        async with LocalEtcd(tmp_path / "etcd", client_port=port, durable=False) as server:
            yield server


class Drill:
    """A cluster with an etcd of its own, whose frontend is `frontend-1`."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self.cluster = cluster
        self.records = directory / "records"
        self.settings = {
            "auth.mode": "keys",
            "usage.prices": f"{MODEL}=1/5",
            "usage.jsonl_path": str(self.records),
            "usage.spool_path": str(directory / "spool"),
        }
        self.answers: Counter[int] = Counter()

    async def start(self) -> None:
        await self.cluster.start("frontend-1", self.settings)

    async def ask(
        self, http: httpx.AsyncClient, secret: str, prompt: str = PROMPT
    ) -> httpx.Response:
        url = f"http://{self.cluster['frontend-1'].instance.http_address}/v1/completions"
        body = {"model": MODEL, "prompt": prompt, "max_tokens": 4, "ignore_eos": True}
        headers = {"authorization": f"Bearer {secret}"}
        response = await http.post(url, json=body, headers=headers)
        self.answers[response.status_code] += 1
        return response

    @asynccontextmanager
    async def load(self, http: httpx.AsyncClient, secrets: Sequence[str]) -> AsyncIterator[None]:
        """Ask without a pause by some clients; the requests that run at the end are answered."""
        ending = asyncio.Event()

        async def client(number: int) -> None:
            secret, asked = secrets[number % len(secrets)], 0
            while not ending.is_set():
                asked += 1
                await self.ask(http, secret, f"{number} {asked} {PROMPT}")

        clients = [asyncio.create_task(client(number)) for number in range(CLIENTS)]
        try:
            yield
            ending.set()
            await asyncio.gather(*clients)
        finally:
            for one in clients:
                one.cancel()
            await asyncio.wait(clients)

    async def answered(self, more: int) -> None:
        """Wait until so many more requests have been answered."""
        wanted = self.answers.total() + more
        await eventually(lambda: self.answers.total() >= wanted)

    def usage(self) -> list[UsageRecord]:
        return list(RecordFiles(files_of(self.records)))


async def test_backups_cost_no_request_and_bring_back_all_of_a_lost_etcd(
    own_etcd: LocalEtcd,
    launcher: Any,
    random_model: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cheap = KeyDerivation(b"0123456789abcdef", n=16, r=1, p=1)
    monkeypatch.setattr(KeyDerivation, "new", lambda: cheap)  # it would hold up all services
    path = tmp_path / "backup"
    (tmp_path / "cluster").mkdir()
    cluster = LocalCluster(
        own_etcd.endpoints, launcher, tmp_path / "cluster", random_model, Shape()
    )
    async with cluster, httpx.AsyncClient() as http:
        drill = Drill(cluster, tmp_path)
        await cluster["frontend-0"].stop()
        await drill.start()
        async with Etcd(own_etcd.endpoints, 30) as etcd:
            secrets = await _teams(etcd, cluster.name)
            for secret in secrets:
                await eventually(lambda secret=secret: _known(drill, http, secret))
            await drill.ask(http, secrets[0])  # its KV is found again at the end
            drill.answers.clear()
            async with drill.load(http, secrets):
                for _ in range(BACKUPS):
                    await drill.answered(2 * CLIENTS)
                    header, _ = await back_up(etcd, cluster.name, path, PASSPHRASE)
                await drill.answered(2 * CLIENTS)  # which the last backup does not have
            assert drill.answers.keys() == {200}
            assert drill.answers[200] > CLIENTS * BACKUPS
            before = await _records(etcd, cluster.name)
        await cluster["frontend-1"].stop()
        await cluster["router-0"].stop()
        await own_etcd.kill()
        await asyncio.to_thread(shutil.rmtree, tmp_path / "etcd")
        await own_etcd.start()
        await cluster.start("router-0")
        await drill.start()
        async with Etcd(own_etcd.endpoints, 30) as etcd:
            assert (await drill.ask(http, secrets[0])).status_code == 401
            usage = UsageSince(header.created_seconds)
            usage.read_files(drill.records)
            await Restore(etcd, cluster.name, Backup(path), PASSPHRASE, usage=usage).run()
            for secret in secrets:
                await eventually(lambda secret=secret: _known(drill, http, secret))
            assert await _records(etcd, cluster.name) == before
            await _check_spending(etcd, cluster.name, drill)
            found = await drill.ask(http, secrets[0])
            cached = found.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached > 100
            async with within(10):  # and goes on from there
                await eventually(lambda: _is_spent(etcd, cluster.name, drill))


async def _teams(etcd: Etcd, cluster: str) -> list[str]:
    admin, secrets = Administration(etcd, cluster), []
    for tenant in TENANTS:
        await admin.create_tenant(
            tenant, Tier.PRO, budget_nanodollars_per_month=10**12, tokens_per_minute=10**9
        )
        project = await admin.create_project(
            tenant, "search", budget_nanodollars_per_month=10**11, requests_per_minute=10**6
        )
        _, secret = await admin.create_key(project, budget_nanodollars_per_month=10**10)
        secrets.append(secret)
    return secrets


async def _known(drill: Drill, http: httpx.AsyncClient, secret: str) -> bool:
    url = f"http://{drill.cluster['frontend-1'].instance.http_address}/v1/models"
    response = await http.get(url, headers={"authorization": f"Bearer {secret}"})
    return response.status_code == 200


async def _records(etcd: Etcd, cluster: str) -> dict[str, bytes]:
    """Return tenants, projects, keys with limits and budgets, and salts."""
    found: dict[str, bytes] = {}
    for prefix in (keys.salts(cluster), keys.tenancy(cluster)):
        pairs, _ = await etcd.list(prefix)
        found |= {key: value for key, value in pairs if not key.endswith("/epoch")}
    return found


async def _spent(etcd: Etcd, cluster: str) -> dict[str, int]:
    admin = Administration(etcd, cluster)
    found: dict[str, int] = {}
    for subject in Subject:
        found |= {name: one.spent for name, one in (await admin.spending.all(subject)).items()}
    return found


def _cost(records: Sequence[UsageRecord]) -> dict[str, int]:
    costs: Counter[str] = Counter()
    for one in records:
        for name in (one.tenant, one.project, one.key):
            costs[name] += one.cost_nanodollars or 0
    return dict(costs)


async def _check_spending(etcd: Etcd, cluster: str, drill: Drill) -> None:
    """Compare what is spent with the records of all requests, to the nano-dollar."""
    records = drill.usage()
    assert len(records) == drill.answers[200] + 1
    assert await _spent(etcd, cluster) == _cost(records)


async def _is_spent(etcd: Etcd, cluster: str, drill: Drill) -> bool:
    return await _spent(etcd, cluster) == _cost(drill.usage())
