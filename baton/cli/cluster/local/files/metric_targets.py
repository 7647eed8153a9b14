"""Addresses of the metrics of a cluster's processes, in a file for Prometheus.

The format is that of `file_sd_configs`: a list of groups, each with targets and labels.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from baton.cli.shared.cluster_view import ClusterView, role_name
from baton.internal.v1.cluster_pb2 import Instance
from baton.process.background import start_background
from baton.telemetry.logs import get_logger

log = get_logger(__name__)


def target_groups(instances: Iterable[Instance], cluster: str) -> list[Mapping[str, object]]:
    """Return one group per instance that serves metrics, in order of ID.

    The model is not a label here: each series has its own.
    """
    return [
        {
            "targets": [one.metrics_address],
            "labels": {
                "cluster": cluster,
                "instance": one.id,
                "role": role_name(one.role),
            },
        }
        for one in sorted(instances, key=lambda one: one.id)
        if one.metrics_address
    ]


@asynccontextmanager
async def keep_targets(view: ClusterView, path: Path, cluster: str) -> AsyncIterator[None]:
    """Write the file, and again whenever an instance appears, disappears or moves, until the
    exit."""

    def text() -> str:
        return json.dumps(target_groups(view.instances.values(), cluster), indent=2) + "\n"

    async def follow(written: str) -> None:
        async for _ in view.changes():
            now = text()
            if now != written and _write(path, now):
                written = now

    first = text()
    following = start_background(follow(first if _write(path, first) else ""), "metric targets")
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])


def _write(path: Path, text: str) -> bool:
    """Replace the file atomically, so that readers never see a partial one; return whether it
    worked."""
    draft = path.with_suffix(".new")
    try:
        draft.write_text(text)
        draft.rename(path)
    except OSError as error:  # the disk is full: the next change writes it
        log.warning("cli.metric_targets.not_written", path=str(path), error=str(error))
        return False
    return True
