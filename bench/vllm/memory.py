"""Part `memory`: memory of a cluster's processes with the vLLM engine, and its start-up time."""

import argparse
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.harness import ROOT
from bench.harness.cluster import Cluster, cluster
from bench.harness.machine import memory_bytes
from bench.harness.table import Table

_MODEL = ROOT / "models" / "baton-tiny"
_GOAL_BYTES = 3 << 30
_GOAL_SECONDS = 30.0
_KINDS = ("rss", "uss", "pss")


def processes(up: Cluster) -> dict[int, str]:
    """Return the processes that `baton up` started, including itself: names by pid."""
    parents: dict[int, int] = {}
    names: dict[int, str] = {}
    for path in Path("/proc").iterdir():
        if not path.name.isdigit():
            continue
        with suppress(OSError):  # the process has ended
            name, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
            parents[int(path.name)], names[int(path.name)] = int(rest.split()[1]), name
    known = {pid: name for name, pid in up.pids().items()}
    found = {up.supervisor: "baton up"}
    while more := [pid for pid in parents if pid not in found and parents[pid] in found]:
        found |= {pid: known.get(pid, names[pid]) for pid in more}
    return found


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Start the cluster of the demo's model once per round."""
    print(
        "\nmemory: `baton up --engine vllm --prefill 1 --decode 1` with the demo's model, all "
        "settings as\nthey are; MiB once it serves. USS: of the process alone; PSS: shared memory "
        "by parts, so that\nthe sum counts it once."
    )
    results: list[dict[str, Any]] = []
    workers = ("--engine=vllm", "--prefill=1", "--decode=1", f"--model={_MODEL}")
    for _ in range(options.rounds):
        began = time.perf_counter()
        async with cluster(*workers) as up:
            seconds = time.perf_counter() - began
            used = {f"{name} ({pid})": memory_bytes(pid) for pid, name in processes(up).items()}
        results.append({"seconds": seconds, "processes": used})
    table = Table(("process", "<24"), *[(kind.upper(), "8.0f") for kind in _KINDS])
    for name, used in results[-1]["processes"].items():
        table.row(name, *[used[kind] / 2**20 for kind in _KINDS])
    sums = {kind: sum(each[kind] for each in results[-1]["processes"].values()) for kind in _KINDS}
    table.row("sum", *[total / 2**20 for total in sums.values()])
    verdict = "met" if max(sums["uss"], sums["pss"]) <= _GOAL_BYTES else "missed"
    print(f"USS {sums['uss'] / 2**30:.2f} GiB, PSS {sums['pss'] / 2**30:.2f}; goal ≤ 3: {verdict}")
    starts = sorted(result["seconds"] for result in results)
    verdict = "met" if starts[len(starts) // 2] <= _GOAL_SECONDS else "missed"
    print(
        f"seconds until serving, of {len(starts)} starts: best {starts[0]:.1f}, median "
        f"{starts[len(starts) // 2]:.1f}, worst {starts[-1]:.1f}; goal ≤ 30: {verdict}"
    )
    return results
