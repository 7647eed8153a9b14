"""docs/metrics.md, from the metric families of each process."""

import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from scripts.docs.table import code, table

PROCESSES = {
    "frontend": "services.frontend.app",
    "router": "services.router.app",
    "prefill and decode": "baton.worker.app",
    "kvstore": "services.kvstore.app",
    "picker": "services.picker.app",
}
HEAD = ("name", "type", "labels", "meaning")
INTRODUCTION = """# Metrics

This page lists every metric of every process, for operators who set up dashboards and alerts. Each process
serves `/metrics` in Prometheus' format on its ops port (`ops.host`, `ops.port`); `baton status --metrics` lists
the addresses of a cluster. A frontend also serves `/metrics` on its HTTP port if `public.metrics` is on.

Processes also export the metrics of the Prometheus Python client (`process_*`, `python_*`). A metric's name
states its unit. No label has values that clients choose freely. Histograms are in seconds and have `_bucket`,
`_sum` and `_count` series.

"""

Family = tuple[str, str, str, str]


def page() -> str:
    """Return the page."""
    found = {process: _families(module) for process, module in PROCESSES.items()}
    common = [one for one in found["frontend"] if all(one in others for others in found.values())]
    parts = [INTRODUCTION, "## Every process\n\n", table(HEAD, common)]
    for process, families in found.items():
        own = [one for one in families if one not in common]
        parts += [f"\n## {process}\n\n", table(HEAD, own)]
    return "".join(parts)


def _families(module: str) -> list[Family]:
    """Return the metric families of a process, from its own process: registries are global."""
    command = [sys.executable, "-m", "scripts.docs.metrics", module]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [tuple(row) for row in json.loads(output)]


def declared(module: str) -> list[Family]:
    """Import a process's composition and return the families in its registry."""
    from importlib import import_module

    from baton.telemetry.scope import PROCESS

    import_module(module)
    rows = []
    for collector in PROCESS.registry._collector_to_names:
        labels = getattr(collector, "_labelnames", None)
        if labels is not None:
            rows += [_row(family, labels) for family in collector.collect()]
    if module == PROCESSES["kvstore"]:
        rows += [
            _row(family, getattr(family, "_labelnames", ())) for family in asyncio.run(_of_store())
        ]
    return [row for row in rows if not row[0].startswith(("`python_", "`process_"))]


def _row(family: object, labels: object) -> Family:
    name, kind = str(family.name), str(family.type)
    full = f"{name}_total" if kind == "counter" else name
    names = ", ".join(map(code, labels))
    return code(full), kind, names, str(family.documentation)


async def _of_store() -> list[object]:
    """Return the families of a store with a disk, which are created when they are read."""
    from baton.kv.events.log import EventLog
    from services.kvstore.disk.file import SLAB_BYTES, DiskFile
    from services.kvstore.disk_setup import add_disk
    from services.kvstore.memory.arena import Arena
    from services.kvstore.metrics import StoreMetrics
    from services.kvstore.store import Store

    with tempfile.TemporaryDirectory() as directory, Arena(Path(directory), 1 << 20) as arena:
        store = Store("docs", arena, EventLog("e"), reservation_seconds=1, lease_seconds=1)
        file = DiskFile(Path(directory) / "disk", SLAB_BYTES)
        add_disk(store, file, [])
        families: list[object] = list(StoreMetrics(store).collect())
        await store.close_disk()
        store.close()
    return families


if __name__ == "__main__":
    print(json.dumps(declared(sys.argv[1])))
