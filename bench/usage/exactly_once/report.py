"""Output of a run."""

from collections import Counter
from typing import Any

from bench.harness.table import Table
from bench.usage.exactly_once.clients import Seen
from bench.usage.exactly_once.faults import Faults
from bench.usage.exactly_once.verdict import SUMS, Verdict


def report(
    asked: list[Seen], faults: Faults, verdicts: dict[str, Verdict], counts: dict[str, int]
) -> dict[str, Any]:
    """Print the faults and the counts; return them."""
    table = Table(
        ("fault", "<28"), ("done", "5"), ("hit", "4"), ("requests cut, or ended then", "5")
    )
    for kind, done in faults.done.items():
        table.row(kind, done.count, done.hits, done.hit)
    print()
    table = Table(
        ("requests", "<14"), ("made", "6"), ("told the end", "6"), ("refused", "6"), ("other", "6")
    )
    kinds = dict.fromkeys(seen.ask.kind for seen in asked)
    for kind in kinds:
        some = [seen for seen in asked if seen.ask.kind == kind]
        told = sum(seen.told is not None for seen in some)
        refused = sum(seen.refused for seen in some)
        table.row(kind, len(some), told, refused, len(some) - told - refused)
    print()
    answers: Counter[str] = sum(verdicts["Postgres"].answers.values(), Counter())
    table = Table(("told to the end", "<16"), *((name, "12,d") for name in SUMS))
    table.row("the clients", *(answers[name] for name in SUMS))
    for name, verdict in verdicts.items():
        sums: Counter[str] = sum(verdict.records.values(), Counter())
        table.row(name, *(sums[one] for one in SUMS))
        table.row("  difference", *(sums[one] - answers[one] for one in SUMS))
    others = dict(verdicts["Postgres"].others)
    print(f"\nrecords of those who saw no end: {others}; {counts}")
    return {
        "faults": {kind: vars(done) for kind, done in faults.done.items()},
        "answers": answers,
        "others": others,
        **counts,
    }
