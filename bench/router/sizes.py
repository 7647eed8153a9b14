"""Placements per second of the deciding object, on fleets of several sizes.

Prompts of 64 blocks of which about 48 are stored. Keys are given, and each placement's ticket is
returned. The best of several rounds is printed next to the mean, as it is more reliable on a busy
machine.

    python -m bench.router.sizes [--workers 8 64 1000] [--blocks 100000 1000000] [--json FILE]
"""

import argparse
import random
import time
from itertools import product
from typing import Any

from baton.kv.keys import pack
from bench.harness import cli
from bench.harness.table import Table
from bench.router.fleet import BLOCKS, LAYOUT, Roles, chains, fleet
from services.router.policy.compiled.scorer import choose_scorer
from services.router.policy.placement_service import Chain, PlacementRequest, PlacementService
from services.router.state.instances import Role

ROUND = 200


def rounds(roles: Roles, blocks: int, count: int) -> list[float]:
    """Return the CPU seconds of rounds of placements.

    Args:
        roles: the workers' roles.
        blocks: blocks of the index.
        count: number of rounds.
    """
    prompts = blocks // BLOCKS
    service = PlacementService(fleet(roles, prompts), scorer=choose_scorer().taken)
    some = random.Random(3).sample(chains(prompts), ROUND)
    requests = [
        PlacementRequest("m", BLOCKS * 16 + 5, 256, [Chain(LAYOUT, pack(chain))], seed=number)
        for number, chain in enumerate(some)
    ]
    taken = []
    for _ in range(count + 1):  # the first one warms up
        began = time.process_time()
        for request in requests:
            service.return_tickets(1, [service.place(request, 1, 0.0).ticket])
        taken.append(time.process_time() - began)
    return taken[1:]


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    table = Table(
        ("workers", "7,d"),
        ("roles", "<8"),
        ("blocks", "9,d"),
        ("per CPU s", "9,.0f"),
        ("best", "9,.0f"),
    )
    results = []
    for workers, blocks in product(options.workers, options.blocks):
        apart = [Role.PREFILL, Role.DECODE] * (workers // 2)
        for name, roles in (("combined", [Role.COMBINED] * workers), ("apart", apart)):
            taken = rounds(roles, blocks, options.rounds)
            mean, best = ROUND * len(taken) / sum(taken), ROUND / min(taken)
            table.row(workers, name, blocks, mean, best)
            found = {"per_cpu_second": mean, "best_per_cpu_second": best}
            results.append({"workers": workers, "roles": name, "blocks": blocks, **found})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument("--workers", nargs="+", type=int, default=[8, 64, 1_000])
    parser.add_argument("--blocks", nargs="+", type=int, default=[100_000, 1_000_000])


if __name__ == "__main__":
    cli.main(
        measure, __doc__, arguments, rounds=20, smallest="--rounds 1 --workers 8 --blocks 20000"
    )
