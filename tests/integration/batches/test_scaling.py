"""The scaler of frontends follows the lines of batches, by what Prometheus scrapes from them."""

import asyncio
from typing import Any

import yaml

from baton.autoscaling.hpa import desired_replicas
from baton.batches.estimates import CompletionEstimates
from baton.postgres.database import Database
from baton.telemetry.metrics import render
from bench.harness import ROOT
from bench.harness.promql.evaluate import evaluate
from bench.harness.promql.series import SeriesStore
from tests.integration.batches.test_line_store import OURS, Runner, database, runners, started
from tests.support.wait import eventually

__all__ = ["database", "runners"]  # fixtures

SCALERS = ROOT / "k8s/components/autoscaling/scalers.yaml"
FRONTENDS = 2


def trigger() -> Any:
    """Return the scaler's trigger for lines."""
    scalers = yaml.safe_load_all(SCALERS.read_text())
    frontend = next(one for one in scalers if one["metadata"]["name"] == "frontend")
    triggers = [one["metadata"] for one in frontend["spec"]["triggers"]]
    (found,) = (one for one in triggers if "baton_batch" in one["query"])
    return found


def replicas(query: Any) -> int:
    """Return what an HPA of two frontends sets, each of which counts all lines."""
    text, series = render()[0].decode(), SeriesStore()
    for number in range(FRONTENDS):
        series.scrape(text, 0.0, namespace="baton", pod=f"frontend-{number}")
    (value,) = evaluate(query["query"], series, 0.0).values()
    return desired_replicas(value, float(query["threshold"]), FRONTENDS, 0, 100)


async def test_frontends_follow_the_lines_that_have_not_ended(
    runners: list[Runner], database: Database
) -> None:
    first, query = runners[0], trigger()
    batch = await started(first, 1000)
    estimates = asyncio.ensure_future(CompletionEstimates(first.batches, 120.0).run())
    try:
        await eventually(lambda: replicas(query) == 4)
        # Lines that are claimed count until they have ended: their frontends are needed.
        claimed = await first.lines.claim(batch, 1000)
        await first.write(claimed[:900])
        await eventually(lambda: replicas(query) == 1)
        await first.batches.cancel(OURS, f"batch_{batch.id.hex}")
        await eventually(lambda: replicas(query) == 0)
    finally:
        estimates.cancel()
        await asyncio.wait([estimates])
