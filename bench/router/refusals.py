"""Cost of rejecting a request that would be too late.

8 workers that compute 1,500 tokens a second each, with a queue as long as a target of one second
allows: prompts of 200 tokens on average, all of them new, of one tenant and of 64. Prints the CPU
microseconds of a query from its message to its rejection, including the log line (written to
nowhere), for the best and the median round.

    python -m bench.router.refusals [--rounds 20] [--json FILE]
"""

import argparse
import asyncio
import os
import random
import time
from pathlib import Path
from typing import Any

from baton.internal.v1 import router_pb2
from baton.kv.keys import pack
from baton.telemetry import logs
from bench.harness import cli
from bench.harness.stats import percentile
from bench.harness.table import Table
from bench.router.fleet import LAYOUT, fleet
from bench.router.overload.load import Offer, Source
from bench.router.place import NullAsker
from services.router.api.dispatcher import QueryDispatcher
from services.router.policy.compiled.scorer import choose_scorer
from services.router.policy.placement_service import PlacementService
from services.router.state.fleet import Fleet
from services.router.state.instances import LoadReport, Role

WORKERS = 8
RATE = 1_500.0
TARGET_SECONDS = 1.0
FILL = 3_000
"""Queries after which no more are accepted."""
ASKED = 500
"""Queries per round."""


def workers() -> Fleet:
    """Return a fleet of idle workers."""
    made = fleet([Role.COMBINED] * WORKERS)
    for number in range(WORKERS):
        report = LoadReport(
            f"worker-{number}",
            free_pages=10_000,
            total_pages=10_000,
            prefill_tokens_per_second=RATE,
            decode_step_seconds=0.001,
            fetch_bytes_per_second=1e9,
        )
        made.apply_report(report, 0.0)
    return made


def queries(count: int, tenants: int) -> list[router_pb2.PlaceQuery]:
    """Return queries of some tenants in turns, with a target."""
    draw = random.Random(5)  # not that of the fleet, as no blocks are stored
    drawn = Offer("", "", [Source("all", "", 300.0)], count / 300, 0.0, 200.0, 4).arrivals()
    asked = []
    for number, (_, _, tokens) in enumerate(drawn):
        keys = [draw.randbytes(16) for _ in range(tokens // 16)]
        one = router_pb2.PlaceQuery(
            correlation_id=number,
            chains=[router_pb2.Chain(layout_id=LAYOUT, keys=pack(keys), block_tokens=16)],
            prompt_tokens=tokens,
            max_tokens=4,
            n=1,
            ttft_target_seconds=TARGET_SECONDS,
        )
        one.context.model = "m"
        one.context.tenant = f"tenant-{number % tenants}"
        one.context.request_id = f"request-{number}"
        asked.append(one)
    return asked


def measure_tenants(tenants: int, rounds: int) -> tuple[int, list[float]]:
    """Return the number of waiting requests, and CPU seconds per rejection, round by round."""
    loop = asyncio.new_event_loop()  # for timers, none of which may fire
    dispatcher = QueryDispatcher(
        PlacementService(workers(), scorer=choose_scorer().taken), clock=lambda: 1.0, loop=loop
    )
    asker = NullAsker()
    dispatcher.open_session(asker)
    for one in queries(FILL, tenants):
        dispatcher.ask(asker, one)
    asked = queries(FILL + 2 * ASKED, tenants)[FILL:]
    refused = [one for one in asked if not dispatcher.ask(asker, one)][:ASKED]
    waiting, taken = len(dispatcher), []
    for _ in range(rounds):
        began = time.process_time()
        for one in refused:
            dispatcher.ask(asker, one)
        taken.append((time.process_time() - began) / len(refused))
    assert len(dispatcher) == waiting, "what was refused is accepted"
    loop.close()
    return waiting, taken


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Print and return the cost of rejections."""
    with Path(os.devnull).open("w") as nowhere:
        logs.configure("bench", "bench", "info", stream=nowhere, for_good=True)
        table = Table(("tenants", "7d"), ("waiting", "7d"), ("us", "6.0f"), ("median", "6.0f"))
        results = []
        for tenants in (1, 64):
            waiting, taken = measure_tenants(tenants, options.rounds)
            best, median = min(taken), percentile(taken, 50)
            table.row(tenants, waiting, best * 1e6, median * 1e6)
            results.append({"tenants": tenants, "waiting": waiting, "seconds": taken})
    return results


if __name__ == "__main__":
    cli.main(measure, __doc__, rounds=20, smallest="--rounds 1")
