"""One run of a trace on a pool that scales."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from services.router.sizing.demand import DemandLog
from services.router.state.instances import Role
from simulator.config import ClusterConfig
from simulator.model.events import EventLoop
from simulator.policies.baton import BatonRouter
from simulator.policies.catalog import PolicyEntry
from simulator.policies.holdings import block_keys
from simulator.request import Request
from simulator.run import requests_of
from simulator.scaling.cluster import ElasticCluster
from simulator.scaling.config import ScalingConfig
from simulator.scaling.deployment import Deployment
from simulator.scaling.scalers import FixedScaler, NeedScaler, QueueScaler, Scaler
from simulator.traces.trace import Trace

OBSERVE_SECONDS = 1.0
REVERSAL_SECONDS = 600.0
"""A replica that starts within this time after one was stopped was stopped too early."""


@dataclass(frozen=True, slots=True)
class ScalingOutcome:
    """The outcome of one run; times in seconds."""

    policy: str
    scaler: str
    requests: int
    finished: int
    """Requests with a first token."""
    in_time: float
    """Share of all requests whose first token came within the TTFT target."""
    p50: float
    p90: float
    p99: float
    worker_hours: float
    """Of running, starting and draining workers."""
    peak: int
    """Most workers at one time."""
    starts: int
    stops: int
    reversals: int
    """Starts within ten minutes after a stop."""
    failed: int
    """Workers that were lost."""
    sizes: tuple[tuple[float, int], ...]
    """When the number of replicas wanted changed, and to what."""
    seconds: float


class _Pool:
    """Drives a deployment by a scaler, until all requests have ended."""

    def __init__(
        self,
        cluster: ElasticCluster,
        deployment: Deployment,
        scaler: Scaler,
        config: ScalingConfig,
        requests: list[Request],
        loop: EventLoop,
    ) -> None:
        self._cluster = cluster
        self._deployment = deployment
        self._scaler = scaler
        self._config = config
        self._requests = requests
        self._loop = loop
        self._until = requests[-1].arrival
        self._synced_at = -config.sync_seconds
        self._stopped_at = -REVERSAL_SECONDS
        self.sizes = [(0.0, deployment.replicas)]
        self.reversals = 0

    def tick(self) -> None:
        """Observe, and decide when it is time; called every second."""
        now, deployment = self._loop.now, self._deployment
        self._cluster.report()
        deployment.count()
        self._scaler.observe(now)
        if now - self._synced_at >= self._config.sync_seconds:
            self._synced_at = now
            self._sync(now)
        if now < self._until or self._cluster.unplaced or self._cluster.prompts:
            self._loop.at(now + OBSERVE_SECONDS, self.tick)

    def _sync(self, now: float) -> None:
        before = self._deployment.replicas
        wanted = self._scaler.wanted(before, now)
        if wanted == before:
            return
        if wanted < before:
            self._stopped_at = now
        elif now - self._stopped_at < REVERSAL_SECONDS:
            self.reversals += 1
            self._stopped_at = -REVERSAL_SECONDS
        self.sizes.append((now, wanted))
        self._deployment.scale(wanted)


def simulate_scaling(
    trace: Trace,
    config: ClusterConfig,
    policy: PolicyEntry,
    scaling: ScalingConfig,
    *,
    multiple: float = 1.0,
    seed: int = 0,
) -> ScalingOutcome:
    """Run a trace on a pool that scales. Equal arguments give equal outcomes.

    Args:
        trace: requests of the run.
        config: the cluster; `workers` are the most that there may be.
        policy: places requests; one of Baton's.
        scaling: how the pool of workers that compute prompts scales.
        multiple: multiple of the recorded rate.
        seed: seed of all random numbers.
    """
    loop = EventLoop()
    cluster = ElasticCluster(config, trace.blocks, trace.block_tokens, loop=loop)
    router = policy.make(config, block_keys(trace.blocks), trace.block_tokens, seed, cluster)
    if not isinstance(router, BatonRouter):
        raise TypeError(f"the workers of policy {policy.name} cannot come and go")
    router.demand = DemandLog(scaling.sizing.arrival_seconds)
    requests = requests_of(trace, multiple)
    started = config.workers if config.started_workers is None else config.started_workers
    deployment = Deployment(cluster, loop, started, scaling.start_seconds)
    makes: dict[str, Callable[[], Scaler]] = {
        "needed": partial(
            NeedScaler, router, scaling, Role.PREFILL if config.pools else Role.COMBINED
        ),
        "queue": partial(QueueScaler, cluster, scaling),
        "fixed": FixedScaler,
    }
    pool = _Pool(cluster, deployment, makes[scaling.scaler](), scaling, requests, loop)
    cluster.serve(router, requests)
    for at in scaling.failures:
        loop.at(at, deployment.fail)
    loop.at(0.0, pool.tick)
    loop.run()
    deployment.count()
    ttfts = np.sort([request.ttft for request in requests])
    count = len(ttfts)
    p50, p90, p99 = (float(ttfts[int(share * count)]) for share in (0.5, 0.9, 0.99))
    return ScalingOutcome(
        policy=policy.name,
        scaler=scaling.scaler,
        requests=count,
        finished=int(np.isfinite(ttfts).sum()),
        in_time=float((ttfts <= scaling.sizing.ttft_target).mean()),
        p50=p50,
        p90=p90,
        p99=p99,
        worker_hours=deployment.worker_seconds / 3600,
        peak=deployment.peak,
        starts=deployment.starts,
        stops=deployment.stops,
        reversals=pool.reversals,
        failed=deployment.failed,
        sizes=tuple(pool.sizes),
        seconds=loop.now,
    )
