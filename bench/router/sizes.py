"""Placements per second of the deciding object, on fleets of several sizes.

Prompts of 64 blocks of which about 48 are stored. Keys are given, and each placement's ticket is
returned. The best of several rounds is printed next to the mean, as it is more reliable on a busy
machine. With three groups, layers have full attention, a window of 128 tokens, or a state, and each
holder has one cut; rounds of layouts with one group and with three take turns.

    python -m bench.router.sizes [--workers 8 64] [--blocks 100000] [--groups 1 3] [--json FILE]
"""

import argparse
import random
import time
from collections.abc import Sequence
from itertools import product
from typing import Any

from baton.kv.keys import pack
from bench.harness import cli
from bench.harness.table import Table
from bench.router.fleet import BLOCKS, GROUPS, LAYOUT, Roles, chains, fleet
from services.router.policy.compiled.scorer import choose_scorer
from services.router.policy.placement_service import Chain, PlacementRequest, PlacementService
from services.router.state.instances import Role

ROUND = 200


def rounds(
    roles: Roles, blocks: int, count: int, groups: Sequence[str] = ("1",)
) -> dict[str, list[float]]:
    """Return the CPU seconds of rounds of placements, by groups of the layout.

    Args:
        roles: the workers' roles.
        blocks: blocks of the index.
        count: number of rounds.
        groups: keys of `GROUPS`.
    """
    prompts = blocks // BLOCKS
    services = {
        name: PlacementService(fleet(roles, prompts, GROUPS[name]), scorer=choose_scorer().taken)
        for name in groups
    }
    some = random.Random(3).sample(chains(prompts), ROUND)
    requests = [
        PlacementRequest("m", BLOCKS * 16 + 5, 256, [Chain(LAYOUT, pack(chain))], seed=number)
        for number, chain in enumerate(some)
    ]
    taken: dict[str, list[float]] = {name: [] for name in groups}
    for _ in range(count + 1):  # the first one warms up
        for name, service in services.items():
            began = time.process_time()
            for request in requests:
                service.return_tickets(1, [service.place(request, 1, 0.0).ticket])
            taken[name].append(time.process_time() - began)
    return {name: spent[1:] for name, spent in taken.items()}


def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    table = Table(
        ("workers", "7,d"),
        ("roles", "<8"),
        ("blocks", "9,d"),
        ("groups", ">6"),
        ("per CPU s", "9,.0f"),
        ("best", "9,.0f"),
    )
    results = []
    for workers, blocks in product(options.workers, options.blocks):
        apart = [Role.PREFILL, Role.DECODE] * (workers // 2)
        for name, roles in (("combined", [Role.COMBINED] * workers), ("apart", apart)):
            of_groups = rounds(roles, blocks, options.rounds, options.groups)
            for groups, taken in of_groups.items():
                mean, best = ROUND * len(taken) / sum(taken), ROUND / min(taken)
                table.row(workers, name, blocks, groups, mean, best)
                found = {"per_cpu_second": mean, "best_per_cpu_second": best}
                row = {"workers": workers, "roles": name, "blocks": blocks, "groups": groups}
                results.append({**row, **found})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the sizes."""
    parser.add_argument("--workers", nargs="+", type=int, default=[8, 64, 1_000])
    parser.add_argument("--blocks", nargs="+", type=int, default=[100_000, 1_000_000])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))


if __name__ == "__main__":
    cli.main(
        measure, __doc__, arguments, rounds=20, smallest="--rounds 1 --workers 8 --blocks 20000"
    )
