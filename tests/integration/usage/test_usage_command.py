"""`baton usage` says the same of Postgres and of files, with the names that etcd has."""

import json
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.tenancy.admin.tenants import Administration
from baton.tenancy.records.tenants import Tier
from baton.usage.record import encode
from tests.support.processes.launcher import Launcher
from tests.support.state.databases import Databases
from tests.support.usage.random_records import bring, random_record

Call = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def call(launcher: Launcher, etcd: LocalEtcd, cluster: str) -> Call:
    """Runs `baton usage` beside the test's cluster; its exit code, output and complaints."""
    main = ("-c", "from baton.cli.app import main; main()", "usage")
    at = ("--etcd-endpoint", ",".join(etcd.endpoints), "--cluster", cluster)
    prices = {"BATON_USAGE_PROVIDER_PRICES": "m=1/0.5/2,tuned+batch=0.1/0.1"}
    return lambda *words: launcher.run((*main, *words, *at), {**os.environ, **prices})


async def test_postgres_and_files_come_to_the_same(
    call: Call, etcd_client: Etcd, cluster: str, databases: Databases, tmp_path: Path
) -> None:
    admin = Administration(etcd_client, cluster)
    await admin.create_tenant("acme", Tier.PRO)
    default, search = (
        await admin.find_project("acme", "default"),
        await admin.create_project("acme", "search"),
    )
    draw = random.Random(11)
    tenants = (("acme", (default.id, search.id)), ("gone", ("proj_ffffffffffffffff",)))
    records = [random_record(draw, tenants) for _ in range(200)]
    lines = [encode(record) + b"\n" for record in records]
    (tmp_path / "usage-1.jsonl").write_bytes(b"".join((*lines, lines[0])))
    url = await databases.migrated()
    await bring(url, records)
    sources = (("--state-url", url), ("--path", str(tmp_path)))

    async def both(*words: str) -> Any:
        told = []
        for source in sources:
            code, out, err = await call(*source, *words, "--json")
            assert (code, err) == (0, "")
            told.append(json.loads(out)["usage"])
        assert told[0] == told[1]
        return told[0]

    days = await both()
    assert sum(row["cost_nanodollars"] for row in days) == sum(
        one.cost_nanodollars or 0 for one in records
    )
    assert sum(row["saved_nanodollars"] for row in days) != 0
    assert {row["project_name"] for row in days} == {"default", "search", "proj_ffffffffffffffff"}
    one = await both(
        *("--project", "search", "--tenant", "acme", "--by", "model", "--by", "key"),
        *("--since", "2024-10-05", "--until", "2024-10-05"),
    )
    assert {(row["model"], "day" in row) for row in one} <= {
        *(("m", False), ("n", False), ("tuned", False))
    }
    start = 1_728_086_400_000
    assert sum(row["requests"] for row in one) == sum(
        one.project == search.id and start <= one.began_ms < start + 86_400_000 for one in records
    )
    code, out, _ = await call(*sources[0], "--project", "search")
    assert (code, "search" in out, search.id in out, "saved $" in out) == (0, True, False, True)
    code, _, err = await call(*sources[0], "--project", "nothing")
    assert (code, "project 'nothing' does not exist" in err) == (2, True)
    code, _, err = await call("--state-url", "postgresql://a:hunter2@127.0.0.1:1/x")
    assert (code, "is unreachable" in err, "hunter2" in err) == (1, True, False)
    code, _, err = await call("--state-url", await databases.empty())
    assert (code, "run `baton db upgrade`" in err) == (1, True)
