"""Compose an endpoint picker."""

from contextlib import suppress
from functools import partial

from baton.cluster.etcd.certificate import connect
from baton.cluster.members.discovery import Discovery
from baton.cluster.members.registration import BUILD_INFO
from baton.cluster.tenants import DEFAULT_TENANT
from baton.internal.v1.cluster_pb2 import ROLE_FRONTEND, ROLE_ROUTER
from baton.process.process import Process
from baton.rpc.protocol import VERSION
from baton.rpc.server.server import Server
from baton.rpc.tls.public import public_tls
from baton.rpc.transport.client_addresses import ClientAddresses
from baton.rpc.transport.links import links
from baton.rpc.transport.unfinished import Unfinished
from baton.settings import PickerSettings
from baton.version import full_version
from services.picker.choice.frontends import FrontendChoice
from services.picker.choice.outlooks import RouterOutlooks
from services.picker.choice.picker import EndpointPicker
from services.picker.exchange.bodies import HeldBodies
from services.picker.service import SERVICE_NAME, PickerService

_LIST_SECONDS = 60.0


async def compose(process: Process, settings: PickerSettings) -> None:
    """Follow the cluster and serve gateways; ready once etcd was listed.

    It is no member of the cluster: no process calls it, and it owns nothing.
    """
    stack, readiness = process.stack, process.readiness
    readiness.wait_for("cluster", "waiting for etcd")
    await stack.enter_async_context(links(settings, ["picker"]))
    public = await stack.enter_async_context(
        public_tls(settings.public, settings.tls.check_seconds)
    )
    etcd = await stack.enter_async_context(connect(settings.etcd, settings.tls))
    discovery = await stack.enter_async_context(
        Discovery(etcd, settings.etcd.cluster, settings.etcd)
    )
    frontends = FrontendChoice(partial(discovery.by_role, ROLE_FRONTEND))
    outlooks = RouterOutlooks(
        partial(discovery.by_role, ROLE_ROUTER),
        lambda: {card.name for card in discovery.models.values()},
        DEFAULT_TENANT if settings.auth.mode == "off" else "",
        settings.picking.outlook_seconds,
    )
    stack.push_async_callback(outlooks.close)
    picker = EndpointPicker(frontends, outlooks, settings.picking.sheddable)
    bodies = HeldBodies(settings.picking.max_body_bytes, settings.picking.max_held_bytes)
    server = await stack.enter_async_context(
        Server(
            settings.grpc,
            process.name,
            settings.advertise_host,
            process.incarnation,
            tls=public,
            addresses=ClientAddresses(settings.public.max_connections_per_address),
            unfinished=Unfinished(settings.public.max_unfinished_bytes),
        )
    )
    BUILD_INFO.labels(full_version(), str(VERSION)).set(1)
    server.add(PickerService(picker, frontends, bodies).register, SERVICE_NAME)
    await server.start()
    readiness.follow(server.set_ready)
    process.ready_when("cluster", _listed(discovery))

    async def drain() -> None:
        # Gateways send new requests to another picker, and wait for the ends of those here.
        server.retire_connections()
        await server.drain(settings.drain_seconds)

    process.on_drain(drain)


async def _listed(discovery: Discovery) -> None:
    """Return once etcd was listed, however long that takes."""
    while not discovery.synced:
        with suppress(TimeoutError):
            await discovery.wait_synced(_LIST_SECONDS)
