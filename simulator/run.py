"""One run of a trace, and the search for the highest load that a policy sustains."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.cluster import SimulatedCluster
from simulator.config import ClusterConfig
from simulator.model.events import EventLoop
from simulator.policies.catalog import PolicyEntry
from simulator.policies.holdings import block_keys
from simulator.request import Request
from simulator.traces.trace import Trace

LOWEST, HIGHEST = 0.1, 6.4
"""Multiples of the recorded rate between which a search starts."""
MAX_MULTIPLE = 1e4
"""Highest multiple of a recorded rate that is tried."""


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets for time to first token that define a sustained load, in seconds."""

    p90: float = 5.0
    p99: float = 30.0

    def allowed(self, requests: int) -> tuple[int, int]:
        """Return how many requests may take longer than `p90`, and how many than `p99`."""
        return requests - 1 - int(0.9 * requests), requests - 1 - int(0.99 * requests)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """The outcome of one run; times in seconds. A rejected request never has a first token."""

    policy: str
    multiple: float
    """Multiple of the recorded rate."""
    requests: int
    finished: int
    complete: bool
    """Whether the run was completed; if not, it failed, and its times are meaningless."""
    carried: bool
    """Whether the targets were met."""
    p50: float
    p90: float
    p99: float
    mean: float
    """Mean over finished requests."""
    hit_share: float
    """Share of blocks of prompts that were not computed."""
    brought_tokens: int
    """Tokens transferred from other workers."""
    busy_share: float
    """Share of busy time of workers that compute prompts."""
    itl_p99: float
    """Time between tokens of running streams."""
    seconds: float
    """Simulated duration."""


def simulate(
    trace: Trace,
    config: ClusterConfig,
    policy: PolicyEntry,
    *,
    multiple: float = 1.0,
    seed: int = 0,
    targets: Targets = Targets(),  # frozen
    give_up: bool = False,
    requests: list[Request] | None = None,
) -> RunOutcome:
    """Run a trace. Equal arguments give equal outcomes.

    Args:
        trace: requests of the run.
        config: the cluster.
        policy: places requests.
        multiple: multiple of the recorded rate.
        seed: seed of all random numbers.
        targets: targets that decide whether the load is sustained.
        give_up: end the run once the targets cannot be met any more.
        requests: receives the finished requests, if given.
    """
    loop = EventLoop()
    cluster = SimulatedCluster(
        config, trace.blocks, trace.block_tokens, shared_cache=policy.shared_cache, loop=loop
    )
    router = policy.make(config, block_keys(trace.blocks), trace.block_tokens, seed, cluster)
    served = requests_of(trace, multiple)
    watch = _Watch(targets, len(served), loop)
    cluster.serve(router, served, watch.finished if give_up else None)
    loop.run()
    if requests is not None:
        requests.extend(served)
    return _outcome(policy.name, multiple, served, cluster, config, targets, loop)


def requests_of(trace: Trace, multiple: float) -> list[Request]:
    """Return the requests of a trace, in order of time.

    Args:
        trace: the trace.
        multiple: multiple of the recorded rate.
    """
    return [
        Request(number, float(at), prompt, output, chain, tenant)
        for number, (at, prompt, output, chain, tenant) in enumerate(
            zip(
                trace.times / multiple,
                trace.prompt_tokens,
                trace.output_tokens,
                trace.chains,
                trace.tenants,
                strict=True,
            )
        )
    ]


class _Watch:
    """Stops a run that can no longer meet its targets."""

    def __init__(self, targets: Targets, requests: int, loop: EventLoop) -> None:
        self._targets = targets
        self._late, self._very_late = targets.allowed(requests)
        self._loop = loop

    def finished(self, request: Request) -> None:
        """Check a request after its first token."""
        self._late -= request.ttft > self._targets.p90
        self._very_late -= request.ttft > self._targets.p99
        if self._late < 0 or self._very_late < 0:
            self._loop.stop()


def find_multiple(
    run: Callable[[float], RunOutcome],
    *,
    low: float = LOWEST,
    high: float = HIGHEST,
    within: float = 0.005,
) -> tuple[RunOutcome | None, list[RunOutcome]]:
    """Return the run with the highest sustained multiple, and all runs.

    Bisects, assuming that there is one threshold. If `high` is sustained, the multiple is doubled
    until it is not.

    Args:
        run: runs a multiple.
        low: the lowest multiple.
        high: the highest that is tried at first.
        within: how close to come, as a share of the multiple; no closer than of a multiple of 2.

    Returns:
        (None if not even `low` is sustained, otherwise the best run; all runs in order).
    """
    best: RunOutcome | None = None
    runs = [run(high)]
    while runs[-1].carried and high < MAX_MULTIPLE:
        best, low, high = runs[-1], high, 2 * high
        runs.append(run(high))
    while high - low > within * max(2.0, low):
        middle = (low + high) / 2
        outcome = run(middle)
        runs.append(outcome)
        if outcome.carried:
            best, low = outcome, middle
        else:
            high = middle
    return best, runs


def _outcome(
    policy: str,
    multiple: float,
    requests: list[Request],
    cluster: SimulatedCluster,
    config: ClusterConfig,
    targets: Targets,
    loop: EventLoop,
) -> RunOutcome:
    ttfts = np.sort([request.ttft for request in requests])
    count = len(ttfts)
    finished = ttfts[np.isfinite(ttfts)]
    p50, p90, p99 = (float(ttfts[int(share * count)]) for share in (0.5, 0.9, 0.99))
    # A run that was aborted early did not meet them, regardless of its finished requests.
    carried = not loop.stopped and p90 <= targets.p90 and p99 <= targets.p99
    busy = sum(worker.busy_seconds for worker in cluster.workers)
    return RunOutcome(
        policy=policy,
        multiple=multiple,
        requests=count,
        finished=len(finished),
        complete=not loop.stopped,
        carried=carried,
        p50=p50,
        p90=p90,
        p99=p99,
        mean=float(finished.mean()) if len(finished) else float("inf"),
        hit_share=cluster.found_blocks / max(1, cluster.prompt_blocks),
        brought_tokens=cluster.brought_tokens,
        busy_share=busy / max(loop.now * config.workers, 1e-9),
        itl_p99=cluster.step_times.percentile(99),
        seconds=loop.now,
    )
