"""What reads and turns notice of a month being dropped: `python -m bench.conversations.retention`.

A separate Postgres has conversations of 24 months, as in `bench.conversations.history`. Two tasks
read conversations of the newest month and two store turns, in windows of some seconds. In every
other window, retention drops the oldest month, which takes a part of the window. Milliseconds are
of all windows of a kind.
"""

import argparse
import asyncio
import random
import time
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

from baton.conversations.ids import RESPONSE, draw_block, text_of
from baton.conversations.opening import open_conversations
from baton.conversations.partitions import maintain, month_after
from baton.conversations.records import StateScope, Turn
from baton.conversations.store import ConversationStore
from baton.postgres.connecting import connected
from baton.settings import ConversationSettings
from bench.conversations.filled import EACH, FIRST, SECONDS, filled
from bench.conversations.history import ITEM
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table

TASKS = 2
"""Of each kind."""
NEWEST = "select tenant, id, last_item from made order by began desc limit 500"
Times = dict[str, list[float]]


async def work(
    store: ConversationStore, rows: list[tuple[Any, ...]], until: float, kind: str, times: Times
) -> None:
    """Read or write until a time, one after the other."""
    draw = random.Random(until)
    while time.perf_counter() < until:
        tenant, conversation, last = draw.choice(rows)
        scope = StateScope(tenant, "")
        path = await store.path(scope, text_of(RESPONSE, last))
        began = time.perf_counter()
        if kind == "read":
            assert len(await store.items_between(scope, conversation, conversation, last)) >= EACH
        else:
            block = draw_block(int(time.time() * 1000))
            await store.write(scope, Turn(block, [ITEM] * 3, 2, "completed", ITEM, path))
        times[kind].append((time.perf_counter() - began) * 1000)


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    stored = ConversationSettings(enabled=True, statement_seconds=60, retention_days=0)
    alone: Times = defaultdict(list)
    beside: Times = defaultdict(list)
    drops: list[float] = []
    async with (
        filled(options.items) as settings,
        open_conversations(settings, stored) as store,
        connected(settings) as connection,
    ):
        assert store is not None
        await store.database.wait_available(SECONDS)
        rows = [tuple(row) for row in await store.database.fetch(NEWEST)]

        async def window(times: Times) -> None:
            until = time.perf_counter() + options.seconds
            async with asyncio.TaskGroup() as tasks:
                for kind in ("read", "write"):
                    for _ in range(TASKS):
                        tasks.create_task(work(store, rows, until, kind, times))

        await window(defaultdict(list))  # plans and caches
        for month in range(1, options.rounds + 1):
            await window(alone)
            windows = asyncio.create_task(window(beside))
            await asyncio.sleep(options.seconds / 4)
            began = time.perf_counter()
            today = datetime.now(UTC).date()
            _, dropped = await maintain(connection, today, month_after(FIRST, month))
            drops.append((time.perf_counter() - began) * 1000)
            if not dropped:
                raise SystemExit("no month was dropped")
            await windows
    table = Table(
        ("operation", "<10"),
        ("alone p50 ms", "8.3f"),
        ("p99", "8.3f"),
        ("while dropping p50", "8.3f"),
        ("p99", "8.3f"),
        ("p99 x", "6.2f"),
    )
    for kind in ("read", "write"):
        values = [percentile(times[kind], at) for times in (alone, beside) for at in (50, 99)]
        table.row(kind, *values, values[3] / values[1])
    print(f"{len(drops)} months dropped, one in {percentile(drops, 50):.0f} ms (median)")
    return {"alone": alone, "beside": beside, "drops_ms": drops}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=3.0, help="of a window")


if __name__ == "__main__":
    smallest = "--items 4800 --rounds 1 --seconds 0.5"
    cli.main(measure, __doc__, arguments, rounds=10, smallest=smallest)
