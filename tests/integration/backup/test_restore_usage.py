"""`baton restore --usage`: spending after a loss is the cost of all requests, of each source."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from baton.backup.reader import Backup
from baton.cli.admin.backup.options import PASSPHRASE_VARIABLE
from baton.cli.shared.errors import CommandError
from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.postgres.database import Database
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.directory.watch import DirectoryWatch
from baton.tenancy.limits.budget import record as spending
from baton.tenancy.limits.budget.month import month_of
from baton.tenancy.limits.budget.record import FrontendCharge, SpendRecord
from baton.tenancy.limits.spec import Subject
from baton.tenancy.records.tenants import Tier
from baton.usage.record import UsageRecord, encode
from baton.usage.sinks.postgres import PostgresSink
from tests.integration.backup.conftest import Wipe, wait_for_epoch
from tests.support.command_line import invoke
from tests.support.state.databases import Databases, state_settings
from tests.support.usage.records import begun

C, TIMEOUT = "blue", 30.0
SUBJECTS = (Subject.TENANT, Subject.PROJECT, Subject.KEY)
VARIABLES = {PASSPHRASE_VARIABLE: "correct horse battery", "COLUMNS": "500"}
BEFORE, AFTER = (7, 11), (1_000_000_007, 13)
"""Costs of requests that ended long before the backup, and after it, in nano-dollars."""
LOST_COST = 3
"""Of a request that ended just before the backup, whose cost was not in etcd yet."""


class Teams:
    """A tenant with a budget, and one whose first request comes after the backup."""

    def __init__(self, etcd: LocalEtcd, path: Path) -> None:
        self._etcd = etcd
        self._path = path
        self.ids: dict[str, tuple[str, str, str]] = {}
        """Tenant, project and key, by tenant."""

    async def create(self) -> None:
        async with Etcd(self._etcd.endpoints, TIMEOUT) as etcd:
            admin = Administration(etcd, C)
            for tenant in ("acme", "late"):
                await admin.create_tenant(tenant, Tier.PRO, budget_nanodollars_per_month=10**12)
                project = await admin.create_project(
                    tenant, "search", budget_nanodollars_per_month=10**11
                )
                key, _ = await admin.create_key(project, budget_nanodollars_per_month=10**10)
                self.ids[tenant] = (tenant, project.id, key.id)

    async def back_up(self, month: int) -> int:
        """Record what acme spent, back up, and return when that was."""
        record = SpendRecord("r0", {"f0": FrontendCharge(1, 500, sum(BEFORE))}, 0, 0)
        async with Etcd(self._etcd.endpoints, TIMEOUT) as etcd:
            for subject, ident in zip(SUBJECTS, self.ids["acme"], strict=True):
                await etcd.put(keys.spent(C, month, subject, ident), spending.encode(record))
        await self.run("backup", "--cluster", C)
        return Backup(self._path).header.created_seconds

    async def run(self, command: str, *arguments: str, **variables: str) -> str:
        """Run `baton backup` or `baton restore` and return its output.

        Raises:
            CommandError: it failed.
        """
        words = [command, str(self._path), "--etcd-endpoint", self._etcd.endpoints[0], *arguments]
        done = await asyncio.to_thread(invoke, words, env={**VARIABLES, **variables})
        if isinstance(done.exception, CommandError):
            raise done.exception
        assert done.exception is None, done.output
        return done.output

    async def spent(self, month: int) -> dict[str, list[int]]:
        """Return what each tenant, its project and its key spent."""
        found: dict[str, list[int]] = {}
        async with Etcd(self._etcd.endpoints, TIMEOUT) as etcd:
            for tenant, ids in self.ids.items():
                for subject, ident in zip(SUBJECTS, ids, strict=True):
                    value = await etcd.get(keys.spent(C, month, subject, ident))
                    settled = spending.parse(value).settled if value else 0
                    found.setdefault(tenant, []).append(settled)
        return found

    def requests(self, created: int) -> list[UsageRecord]:
        """Return records of requests that began a minute before the backup was made."""

        def request(tenant: str, cost: int, ended: float) -> UsageRecord:
            _, project, key = self.ids[tenant]
            return begun(
                tenant=tenant,
                project=project,
                key=key,
                began_ms=(created - 60) * 1000,
                ended_ms=int((created + ended) * 1000),
                cost_nanodollars=cost,
                outcome="ok",
            )

        return [
            *(request("acme", cost, -30) for cost in BEFORE),
            request("acme", LOST_COST, -0.5),
            *(request("acme", cost, 60) for cost in AFTER),
            request("late", AFTER[0], 60),
            request("acme", 0, 60),
        ]


@pytest.fixture
async def teams(own_etcd: LocalEtcd, tmp_path: Path) -> Teams:
    teams = Teams(own_etcd, tmp_path / "monday.baton")
    await teams.create()
    return teams


Source = Callable[[Sequence[UsageRecord]], Any]


@pytest.fixture(params=["directory", "file", "postgres"])
def source(request: pytest.FixtureRequest, databases: Databases, tmp_path: Path) -> Source:
    """Writes records, and returns what --usage is set to, and variables."""

    async def write(records: Sequence[UsageRecord]) -> tuple[str, dict[str, str]]:
        if request.param == "postgres":
            url = await databases.migrated()
            async with Database(state_settings(url)) as database:
                await database.wait_available(20)
                await PostgresSink(database).write([encode(one) for one in records])
            return "postgres", {"BATON_STATE_URL": url}
        directory = tmp_path / "records"
        files = [directory / f"usage-{number}.jsonl" for number in range(2)]
        if request.param == "file":
            files = files[:1]
        directory.mkdir()
        for number, file in enumerate(files):
            _write(file, records[number :: len(files)])
        return str(directory if request.param == "directory" else files[0]), {}

    return write


async def test_after_a_loss_all_requests_are_spent(
    teams: Teams, wipe: Wipe, source: Source
) -> None:
    month, created = await _backed_up(teams)
    usage, variables = await source(teams.requests(created))
    await wipe()
    told = await teams.run("restore", "--usage", usage, **variables)
    assert re.match(r"Restored (\d+) of \1 records of .* into cluster blue; 0 were there", told)
    acme, late = sum(BEFORE) + LOST_COST + sum(AFTER), AFTER[0]
    assert await teams.spent(month) == {"acme": [acme] * 3, "late": [late] * 3}
    again = json.loads(await teams.run("restore", "--json", "--usage", usage, **variables))
    assert (again["restored"], again["cluster"]) == (0, C)
    assert await teams.spent(month) == {"acme": [acme] * 3, "late": [late] * 3}


async def test_without_usage_records_spending_is_that_of_the_backup(
    teams: Teams, wipe: Wipe
) -> None:
    month, _ = await _backed_up(teams)
    await wipe()
    await teams.run("restore")
    assert await teams.spent(month) == {"acme": [sum(BEFORE)] * 3, "late": [0] * 3}


async def test_where_nothing_was_lost_spending_stays(
    teams: Teams, own_etcd: LocalEtcd, tmp_path: Path
) -> None:
    """Requests go on while etcd is there: what it has is right, and records may lag."""
    async with Etcd(own_etcd.endpoints, TIMEOUT) as etcd, DirectoryWatch(etcd, C) as watch:
        await watch.wait_synced()
        await wait_for_epoch(etcd, C)
    month, created = await _backed_up(teams)
    _write(tmp_path / "usage-1.jsonl", teams.requests(created))
    before = await teams.spent(month)
    told = await teams.run("restore", "--usage", str(tmp_path))
    assert told.startswith("Restored 0 of ")
    assert await teams.spent(month) == before


async def test_into_another_cluster_requests_of_the_first_are_spent(
    teams: Teams, wipe: Wipe, tmp_path: Path
) -> None:
    month, created = await _backed_up(teams)
    _write(tmp_path / "usage-1.jsonl", teams.requests(created))
    await wipe()
    told = await teams.run("restore", "--cluster", "green", "--from", C, "--usage", str(tmp_path))
    assert "into cluster green;" in told
    assert await teams.spent(month) == {"acme": [0] * 3, "late": [0] * 3}


async def test_a_wrong_source_is_refused_before_anything_is_written(
    teams: Teams, wipe: Wipe, databases: Databases, tmp_path: Path
) -> None:
    await _backed_up(teams)
    await wipe()
    empty, garbage, odd = (tmp_path / name for name in ("empty", "garbage", "odd"))
    empty.mkdir()
    garbage.write_bytes(b"\x1f\x8b\x08\n{}\n[]\n")
    (odd / "usage-1.jsonl").mkdir(parents=True)
    none = "has no record of a request that cost anything since the month of the backup: "
    gone = "postgresql://user:secret@127.0.0.1:1/none"
    for usage, url, sentence in (
        ("nowhere", "", "--usage nowhere cannot be read: No such file or directory."),
        (str(empty), "", f"--usage {empty} {none}"),
        (str(garbage), "", f"--usage {garbage} {none}"),
        (str(odd), "", f"--usage {odd} cannot be read: Is a directory."),
        ("postgres", "", "No database is configured: set --state-url, BATON_STATE_URL or"),
        ("postgres", gone, "127.0.0.1:1/none is unreachable: "),
        ("postgres", await databases.empty(), "no Baton schema yet: run `baton db upgrade`."),
        ("postgres", await databases.migrated(), f"--usage postgres {none}"),
    ):
        with pytest.raises(CommandError) as caught:
            await teams.run("restore", "--usage", usage, BATON_STATE_URL=url)
        assert sentence in str(caught.value)
        assert "secret" not in str(caught.value)
    told = await teams.run("restore")
    assert "; 0 were there already, and 0 are newer" in told


async def _backed_up(teams: Teams) -> tuple[int, int]:
    """Return the month in which requests begin, and when the backup was made."""
    created = await teams.back_up(0)
    month = month_of(created - 60)
    return month, await teams.back_up(month)


def _write(path: Path, records: Sequence[UsageRecord]) -> None:
    path.write_bytes(b"".join(encode(one) + b"\n" for one in records))
