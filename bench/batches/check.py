"""The check of a batch's input beside streams: `python -m bench.batches.check`.

Clients stream chat completions of the sim engine without pause, at a frontend that then checks a
batch: from its creation until its lines run, by Postgres' clock. A task in the frontend sleeps for
2 ms again and again: by how much it is late is how long the event loop was blocked, by this process
or by others on this machine. "late" are those by more than 20 ms. CPU is that of the thread that
checks, and of the event loop. Transactions are those of the frontend.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from pydantic import SecretStr

from baton.cluster.etcd.local import LocalEtcd
from baton.postgres.database import Database
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalDatabase
from baton.process.background import cancel_all
from baton.settings import StateSettings
from bench.batches.ticking_frontend import TickFile
from bench.batches.uploads import CHAT, SECONDS, generated_lines, upload
from bench.faults.setup import MODEL, cluster_settings
from bench.harness import cli
from bench.harness.fleet import Fleet
from bench.harness.stats import percentile
from bench.harness.table import Table

COUNTS = {"kvstore": 1, "router": 1, "prefill": 1, "decode": 1, "frontend": 1}
QUIET_SECONDS = 5.0
TRANSACTIONS = """
select xact_commit + xact_rollback from pg_stat_database where datname = current_database()
"""
CHECKED = """
select extract(epoch from in_progress_at - created_at)::float8 from batches where id = $1
"""


class Streams:
    """Streams of chat completions, one after the other, at several clients."""

    def __init__(self, url: str, clients: int) -> None:
        self.gaps: list[float] = []
        """Milliseconds between two events of a stream."""
        self._tasks = [asyncio.create_task(self._run(url, at)) for at in range(clients)]

    async def close(self) -> None:
        """End them."""
        await cancel_all(self._tasks)

    async def _run(self, url: str, at: int) -> None:
        messages = [{"role": "user", "content": f"client {at}"}]
        body = {"model": MODEL.name, "messages": messages, "max_tokens": 400, "stream": True}
        async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as http:
            while True:
                async with http.stream("POST", CHAT, json=body) as answer:
                    answer.raise_for_status()
                    last = 0.0
                    async for line in answer.aiter_lines():
                        if line:
                            now = time.perf_counter()
                            if last:
                                self.gaps.append((now - last) * 1000)
                            last = now


@asynccontextmanager
async def running(directory: Path, database: str, ticks: Path) -> AsyncIterator[Fleet]:
    """Run a cluster of the sim engine, with a frontend that ticks."""
    (directory / "etcd").mkdir()
    async with LocalEtcd(directory / "etcd", durable=False) as etcd:
        settings = cluster_settings("sim", "float64") | {
            "BATON_STATE_URL": database,
            "BATON_FILES_URL": (directory / "files").as_uri(),
            "BATON_BATCHES_MAX_RUNNING": "1",
            "BATON_USAGE_SPOOL_PATH": str(directory / "usage"),
        }
        fleet = Fleet(directory, etcd, settings, COUNTS, {})
        fleet["frontend-0"].program = (
            sys.executable,
            "-m",
            "bench.batches.ticking_frontend",
            ticks,
        )
        try:
            await fleet.start(*fleet.members)
            await fleet.wait_ready()
            yield fleet
        finally:
            await fleet.stop()


def _cpu(pid: int) -> tuple[float, float]:
    """Return the CPU seconds of a process's first thread, and of its others."""
    spent = {
        int(task.name): int((task / "schedstat").read_text().split()[0]) / 1e9
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
    return spent[pid], sum(spent.values()) - spent[pid]


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print a line with streams alone, and one with a check beside them."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as scratch:
        directory, postgres = Path(scratch) / "cluster", Path(scratch) / "postgres"
        directory.mkdir()
        try:
            async with LocalDatabase(postgres) as server:
                state = StateSettings(url=SecretStr(server.url))
                ticks = Path(scratch) / "ticks"
                file = TickFile(ticks)
                async with Database(state) as database, running(directory, server.url, ticks) as up:
                    await database.wait_available(SECONDS)
                    return await _measure(up, database, file, options)
        finally:
            remove_data(postgres)


async def _measure(
    up: Fleet, database: Database, ticks: TickFile, options: argparse.Namespace
) -> list[dict[str, Any]]:
    frontend = up["frontend-0"]
    url = f"http://127.0.0.1:{frontend.http_port}"
    file = await upload(url, generated_lines(options.lines, MODEL.name))
    streams = Streams(url, options.streams)
    results: list[dict[str, Any]] = []
    table = Table(
        *(("work", "<8"), ("seconds", "7.2f"), ("thread CPU s", "12.2f"), ("loop CPU s", "10.2f")),
        *(("blocked ms", "10.1f"), ("ticks", "7.0f"), ("late", "5.0f")),
        *(("gap p99 ms", "10.1f"), ("transactions", "12d")),
    )
    try:
        for work in ("streams", "check"):
            while not streams.gaps:
                await asyncio.sleep(0.05)
            streams.gaps.clear()
            before, cpu = await database.fetch(TRANSACTIONS), _cpu(frontend.pid)
            ticks.reset()
            seconds, looks = QUIET_SECONDS, 0
            if work == "check":
                seconds, looks = await _check(url, file, database)
            else:
                await asyncio.sleep(QUIET_SECONDS)
            found, spent = ticks.read(), _cpu(frontend.pid)
            count = (await database.fetch(TRANSACTIONS))[0][0] - before[0][0] - looks - 1
            values = (
                *(seconds, spent[1] - cpu[1], spent[0] - cpu[0], found.longest_seconds * 1000),
                *(found.all, found.late, percentile(streams.gaps, 99), count),
            )
            table.row(work, *values)
            results.append({"work": work, "values": values})
    finally:
        await streams.close()
    return results


async def _check(url: str, file: str, database: Database) -> tuple[float, int]:
    """Return the seconds from a batch's creation until its lines run, and the looks at it."""
    looks = 1
    async with httpx.AsyncClient(base_url=url, timeout=SECONDS) as http:
        body = {"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"}
        batch = (await http.post("/v1/batches", json=body)).raise_for_status().json()
        ident = batch["id"].removeprefix("batch_")
        while not (found := (await database.fetch(CHECKED, ident))[0][0]):
            await asyncio.sleep(0.05)
            looks += 1
        answer = await http.post(f"/v1/batches/{batch['id']}/cancel")
        answer.raise_for_status()
    assert isinstance(found, float)
    return found, looks


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--lines", type=int, default=50_000, help="default: 50,000")
    parser.add_argument("--streams", type=int, default=8, help="clients; default: 8")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--lines 300 --streams 2")
