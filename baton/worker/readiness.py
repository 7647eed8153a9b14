"""Decide when a worker is ready: when placements can reach it.

A rollout stops old workers as new ones become ready. If no router knew of the new ones by then, no
request could be placed.
"""

import asyncio
from collections.abc import Collection

from baton.cluster.members.discovery import Discovery
from baton.cluster.members.registration import Registration
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER
from baton.kv.client.client import KvStoreClient
from baton.ops.checks import Readiness
from baton.telemetry.logs import get_logger
from baton.worker.load import LoadReporter

ROUTERS = "routers"
STORE = "store"
_POLL_SECONDS = 0.05
_LATER_SECONDS = 60.0
"""Seconds per attempt of waiting for a store that did not exist at the start."""

log = get_logger(__name__)


def missing_routers(discovery: Discovery, watching: Collection[str]) -> list[str]:
    """Return the ids of the routers that accept work and do not watch this worker."""
    routers = {one.id for one in discovery.by_role(ROLE_ROUTER) if not one.draining}
    return sorted(routers.difference(watching))


async def wait_routers(
    readiness: Readiness,
    registration: Registration,
    discovery: Discovery,
    load: LoadReporter,
    limit: float,
) -> None:
    """Return once every router in the cluster watches this worker's load, or there is no router.

    A router that never watches delays this by at most `limit` seconds from the registration: it may
    be of a release that does not identify itself.
    """
    await registration.wait_registered()
    while not discovery.synced:  # noqa: ASYNC110  # changes once
        await asyncio.sleep(_POLL_SECONDS)
    clock = asyncio.get_running_loop().time
    deadline = clock() + limit
    while missing := missing_routers(discovery, load.routers):
        if clock() >= deadline:
            log.warning("worker.routers.missing", peers=missing, seconds=limit)
            return
        readiness.wait_for(ROUTERS, f"not watched by {', '.join(missing)}")
        await asyncio.sleep(_POLL_SECONDS)


async def wait_store(store: KvStoreClient, registration: Registration) -> None:
    """Wait for a store that did not exist at the start, until the worker's record names it."""
    while not await store.wait_connected(_LATER_SECONDS):
        pass
    await registration.update(store_id=store.store_id, shm_domain=store.shm_domain)
