"""Shared parts of the studies: clusters, traces, and runs with the result of each request."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from services.router.admission.shares.classes import DEFAULT_ADMISSION, AdmissionPolicy
from services.router.admission.waiting import DEFAULT_SETTINGS, QueueSettings
from simulator.config import ClusterConfig
from simulator.policies.baton_queue import BatonQueueRouter, TenantAdmission
from simulator.policies.catalog import PolicyEntry
from simulator.request import Request
from simulator.run import RunOutcome, simulate
from simulator.traces.trace import Trace

CLUSTERS = {
    "combined": ClusterConfig(),
    "pools": ClusterConfig(decode_workers=8, disaggregation="always"),
}
"""8 workers, and 8 with 8 more that decode."""
SATURATION = 2.34
"""Multiple of the conversation trace's rate that both can handle (docs/simulation.md)."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run's figures, and its requests with their results."""

    outcome: RunOutcome
    requests: list[Request]


def run(
    trace: Trace,
    config: ClusterConfig,
    multiple: float,
    *,
    settings: QueueSettings = DEFAULT_SETTINGS,
    admission: AdmissionPolicy = DEFAULT_ADMISSION,
    tenants: Mapping[str, TenantAdmission] | None = None,
    seed: int = 0,
) -> Run:
    """Run a trace through the queue.

    Args:
        trace: the requests.
        config: the cluster.
        multiple: multiple of the recorded rate.
        settings: settings of the queue.
        admission: policies of classes.
        tenants: tenants with other shares than the default, by name.
        seed: seed of all random choices.
    """
    make = partial(BatonQueueRouter, settings=settings, admission=admission, tenants=tenants or {})
    entry = PolicyEntry("baton-queue", "Baton with a queue", make)
    requests: list[Request] = []
    outcome = simulate(trace, config, entry, multiple=multiple, seed=seed, requests=requests)
    return Run(outcome, requests)


def of_tenants(trace: Trace, names: Iterable[str]) -> Trace:
    """Return the requests of some tenants alone, at their times."""
    wanted = set(names)
    kept = [number for number, name in enumerate(trace.tenants) if name in wanted]
    return replace(
        trace,
        times=trace.times[kept],
        prompt_tokens=[trace.prompt_tokens[one] for one in kept],
        output_tokens=[trace.output_tokens[one] for one in kept],
        chains=[trace.chains[one] for one in kept],
        tenants=[trace.tenants[one] for one in kept],
    )


def percentile(values: Iterable[float], share: float) -> float:
    """Return the value that a share of all does not exceed; infinite for none."""
    ordered = np.sort(np.fromiter(values, float))
    return float(ordered[int(share * len(ordered))]) if len(ordered) else float("inf")
