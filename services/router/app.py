"""Puts a router together. Leaving the stack undoes it in reverse."""

import asyncio

from baton.cluster.discovery import Discovery
from baton.cluster.etcd import Etcd
from baton.cluster.registration import Registration
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, Instance
from baton.process.lifecycle import Process
from baton.rpc.server import Server
from baton.settings import RouterSettings
from services.router.api.placer import Spread
from services.router.api.service import SERVICE_NAME, RouterService
from services.router.policy.costs import Policy
from services.router.prefix_index.index import PrefixIndex
from services.router.replication.hot_prefixes import HotPrefixes
from services.router.replication.prefetcher import HintSender
from services.router.state.cluster_watch import ClusterView
from services.router.state.fleet import Fleet
from services.router.state.tickets import TicketBook

_SETTLE_SECONDS = 2.0
_LEAVE_SECONDS = 0.3
"""Frontends see that the router drains and ask another one before their streams end."""
_FLUSH_SECONDS = 2.0


async def compose(process: Process, settings: RouterSettings) -> None:
    """Watch the cluster, serve, register; ready once etcd was listed."""
    stack = process.stack
    cluster = settings.etcd.cluster
    etcd = await stack.enter_async_context(Etcd(settings.etcd.endpoints))
    discovery = await stack.enter_async_context(Discovery(etcd, cluster))

    # The incarnation keeps ticket ids of a restarted router apart from those of the one before.
    fleet = Fleet(PrefixIndex(), TicketBook(f"{process.instance_id}/{process.incarnation[:8]}"))
    view = ClusterView(discovery, fleet)
    process.spawn(view.follow(), "cluster view")
    process.spawn(view.tend(), "tend")

    server = await stack.enter_async_context(
        Server(settings.grpc, process.name, settings.advertise_host, process.incarnation)
    )
    policy = Policy(disaggregation=settings.disaggregation)
    spread = None
    if settings.hot_after:
        sender = HintSender(fleet.store_address)
        process.spawn(sender.run(), "hints")
        spread = Spread(HotPrefixes(settings.hot_after, policy), sender.offer)
    service = RouterService(fleet, policy, spread=spread)
    server.add(service.register, SERVICE_NAME)
    await server.start()

    async def open_up() -> None:
        await view.settle(_SETTLE_SECONDS)
        service.open()
        server.set_ready(True)

    opening = process.spawn(open_up(), "open up")
    if discovery.synced:
        # Registering earlier would invite questions that cannot be answered yet. While etcd is
        # away the process starts without knowing the cluster, and opens up later.
        await asyncio.wait([opening])
    instance = Instance(
        id=process.instance_id,
        incarnation=process.incarnation,
        role=ROLE_ROUTER,
        address=server.address,
        http_address=process.metrics_address,
    )
    registration = await stack.enter_async_context(
        Registration(etcd, cluster, instance, ttl=settings.etcd.lease_seconds)
    )

    async def drain() -> None:
        server.set_ready(False)
        await registration.update(draining=True)
        await asyncio.sleep(_LEAVE_SECONDS)
        service.stop()
        await server.drain(_FLUSH_SECONDS)

    process.on_drain(drain)
