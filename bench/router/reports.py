"""How much of a core a router's load reports take: read and taken in, and their workers rebuilt.

Each worker reports 20 times a second, with rates that change and 32 tickets of its work; half of
them never fetched KV and take the median of the others' rates. After each round of reports the
columns of workers are brought up to date once, as a placement does.

    python -m bench.router.reports [--workers 1000] [--rounds 20] [--json FILE]
"""

import argparse
import random
import time
from typing import Any

from baton.internal.v1.worker_pb2 import LoadReport, WatchLoadResponse
from bench.harness import cli
from bench.harness.table import Table
from bench.router.fleet import fleet
from services.router.state.instances import Role
from services.router.watch.convert import report_from_proto

PER_SECOND = 20
TICKETS = 32


def messages(workers: int, seed: int) -> list[bytes]:
    """Return one report of each worker, as it comes."""
    draw = random.Random(seed)
    return [
        WatchLoadResponse(
            report=LoadReport(
                instance_id=f"worker-{number}",
                running=draw.randrange(64),
                waiting=draw.randrange(4),
                pending_prompt_tokens=draw.randrange(50_000),
                free_pages=5_000,
                total_pages=10_000,
                prefill_tokens_per_second=draw.uniform(4_000, 9_000),
                decode_step_seconds=draw.uniform(0.01, 0.04),
                fetch_bytes_per_second=draw.uniform(1e9, 2e9) * (number % 2),
                tickets=[f"router-0/abcdef01/{number * TICKETS + one}" for one in range(TICKETS)],
            )
        ).SerializeToString()
        for number in range(workers)
    ]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    where = fleet([Role.COMBINED] * options.workers)
    arrived = [messages(options.workers, seed) for seed in range(2)]
    taken = rebuilt = 0.0
    for number in range(options.rounds):
        began = time.process_time()
        for message in arrived[number % 2]:
            report = WatchLoadResponse.FromString(message).report
            where.apply_report(report_from_proto(report), number / PER_SECOND)
        taken += time.process_time() - began
        began = time.process_time()
        listed = where.columns("m")
        rebuilt += time.process_time() - began
        assert len(listed) == options.workers
    count = options.rounds * options.workers
    table = Table(
        ("workers", ">7"), ("step", "<12"), ("us a report", "11.2f"), ("of a core", "9.1%")
    )
    results = []
    steps = {"taken in": taken, "rebuilt": rebuilt, "both": taken + rebuilt}
    for step, seconds in steps.items():
        share = seconds / count * PER_SECOND * options.workers
        table.row(str(options.workers), step, seconds / count * 1e6, share)
        found = {"seconds_per_report": seconds / count, "share_of_core": share}
        results.append({"workers": options.workers, "step": step, **found})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workers", type=int, default=1_000, help="workers that report")


if __name__ == "__main__":
    cli.main(measure, __doc__, arguments, rounds=20, smallest="--rounds 1 --workers 20")
