"""Resources that requests hold in a cluster, and a check that all of them are released."""

import asyncio
from typing import TYPE_CHECKING

from tests.support.clock import Stopwatch

if TYPE_CHECKING:
    from tests.support.services.cluster import LocalCluster


async def held(cluster: "LocalCluster") -> dict[str, float]:
    """Return everything that requests can hold, by name, over all running services."""
    running = [service for service in cluster.services.values() if service.running]
    loads = await asyncio.gather(*(cluster.load(w) for w in cluster.workers if w in running))
    stats = await asyncio.gather(*(cluster.stat(s) for s in cluster.stores if s in running))
    shown = await asyncio.gather(*(service.metrics() for service in running))

    def metric(name: str, part: str = "") -> float:
        return sum(
            value
            for metrics in shown
            for label, value in metrics.items()
            if label.startswith(name) and part in label
        )

    return {
        "gRPC handlers of requests": metric("baton_rpc_calls_active", "InferenceService"),
        "requests": metric("baton_frontend_requests_active"),
        "work streams": metric("baton_frontend_worker_streams"),
        "frontend's tickets": metric("baton_frontend_tickets"),
        "streams": sum(load.streams for load in loads),
        "running": sum(load.running for load in loads),
        "waiting": sum(load.waiting for load in loads),
        "pages": sum(load.total_pages - load.free_pages for load in loads),
        "workers' tickets": sum(len(load.tickets) for load in loads),
        "workers' leases": sum(load.leases for load in loads),
        "workers' reservations": sum(load.reservations for load in loads),
        "stores' leases": sum(stat.leases for stat in stats),
        "stores' reservations": sum(stat.reservations for stat in stats),
        "stores' waiters": sum(stat.waiters for stat in stats),
        "stores' quarantined": sum(stat.quarantined for stat in stats),
    }


async def wait_baseline(cluster: "LocalCluster", seconds: float) -> None:
    """Return once nothing is held.

    Raises:
        AssertionError: something is still held after `seconds`; the text names it.
    """
    watch = Stopwatch()
    while left := {name: count for name, count in (await held(cluster)).items() if count}:
        assert watch.remaining(seconds), f"still held after {seconds:g} s: {left}"
        await asyncio.sleep(0.02)
