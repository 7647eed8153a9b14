"""Composition of the store's process."""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from baton.cluster import keys
from baton.cluster.etcd.certificate import connect
from baton.cluster.follow import follow
from baton.cluster.forgotten import ForgottenTenants
from baton.cluster.members.registration import Registration
from baton.internal.v1.cluster_pb2 import ROLE_KVSTORE, Instance
from baton.kv.events.log import EventLog
from baton.kv.events.service import SERVICE_NAME as EVENTS_NAME
from baton.kv.events.service import KvEventService
from baton.kv.verify import ALWAYS, NEVER
from baton.process.lifecycle import Process
from baton.rpc.http2.limits import BULK_LIMITS
from baton.rpc.server.server import Server
from baton.rpc.transport.links import links
from baton.settings import KvStoreSettings, StoreSettings
from baton.settings.transports import NIXL
from baton.telemetry.logs import get_logger
from services.kvstore import disk_setup
from services.kvstore.api.service import SERVICE_NAME, KvStoreService
from services.kvstore.drain import wait_unused
from services.kvstore.memory.arena import STEP_BYTES, Arena
from services.kvstore.metrics import StoreMetrics
from services.kvstore.peers.pool import PeerPool
from services.kvstore.peers.transports.nixl.agent import NixlAgent
from services.kvstore.peers.transports.nixl.endpoint import agent_name
from services.kvstore.peers.transports.nixl.sender import NixlSender
from services.kvstore.peers.transports.nixl.thread import NixlThread
from services.kvstore.store import Store
from services.kvstore.tenant_quotas import TenantQuotas

log = get_logger(__name__)

TICK_SECONDS = 0.05
IDLE_TICK_SECONDS = 0.5
DISK_PART = "baton.kv.disk"
"""In health: not serving means that only memory is used. The store itself stays ready."""


async def compose(process: Process, settings: KvStoreSettings) -> None:
    """Start the store: arena, state, peers, server, registration."""
    own, stack, readiness = settings.store, process.stack, process.readiness
    readiness.wait_for("arena", "the arena's memory is not allocated yet")
    readiness.wait_for("registration", "etcd has no record of this store")
    tls = await stack.enter_async_context(links(settings, ["kvstore"]))
    disk_setup.check(own)
    arena = stack.enter_context(Arena(own.arena_dir, own.arena_bytes // STEP_BYTES * STEP_BYTES))
    events = EventLog(secrets.token_hex(8))
    store = Store(
        process.instance_id,
        arena,
        events,
        reservation_seconds=own.reservation_seconds,
        lease_seconds=own.lease_seconds,
        quotas=own.tenant_bytes,
    )
    stack.callback(store.close)
    stack.push_async_callback(store.close_disk)
    stack.enter_context(StoreMetrics(store))
    process.spawn(touch_arena(store, partial(readiness.done, "arena")), "touch-arena")
    process.spawn(keep_time(store), "keep-time")
    if own.verify != ALWAYS:
        log.warning("kv.verify.reduced", verify=own.verify)
    nixl = None
    if uses_nixl(own, encrypted=tls is not None):
        nixl = nixl_thread(arena, process.instance_id, process.incarnation)
    peers = PeerPool(
        store,
        process.incarnation,
        nixl=nixl,
        verify=own.verify != NEVER,
        settings=settings.peers,
    )
    store.set_peers(await stack.enter_async_context(peers))

    server = await stack.enter_async_context(
        Server(
            settings.grpc,
            process.name,
            settings.advertise_host,
            process.incarnation,
            tls=tls,
            limits=BULK_LIMITS,
            liveness=settings.liveness,
        )
    )
    server.add(
        KvStoreService(store, NixlSender(store, nixl), settings.limits, peers).register,
        SERVICE_NAME,
    )
    server.add(KvEventService(events, settings.events).register, EVENTS_NAME)
    await server.start()
    if nixl is not None:
        # After the server: to peers, a refused connection proves that nothing is written.
        stack.push_async_callback(nixl.close)
    if own.disk_bytes and own.disk_path is not None:
        server.set_part(DISK_PART, True)
        keeping = disk_setup.keep_disk(
            store,
            own.disk_path,
            own,
            partial(server.set_part, DISK_PART),
            verify=own.verify != NEVER,
        )
        process.spawn(keeping, "kv-disk")

    etcd = await stack.enter_async_context(connect(settings.etcd, settings.tls))
    quotas = TenantQuotas(store, own.tenant_bytes)
    process.spawn(follow(etcd, keys.tenants(settings.etcd.cluster), quotas), "follow-tenants")
    forgotten = ForgottenTenants()
    forgotten.on_change.append(store.forget)
    process.spawn(
        follow(etcd, keys.forgotten(settings.etcd.cluster), forgotten), "follow-forgotten"
    )
    instance = Instance(
        id=process.instance_id,
        incarnation=process.incarnation,
        role=ROLE_KVSTORE,
        address=server.address,
        shm_domain=arena.shm_domain,
        metrics_address=process.metrics_address,
    )
    registration = await stack.enter_async_context(
        Registration(etcd, settings.etcd.cluster, instance, settings=settings.etcd)
    )
    readiness.follow(server.set_ready)

    process.ready_when("registration", registration.wait_registered())

    async def drain() -> None:
        # KV is a cache, and clients continue without the store: but the KV that workers hand over
        # as they stop is worth fetching.
        await registration.update(draining=True)
        await wait_unused(store, own.drain_quiet_seconds)

    process.on_drain(drain)


def uses_nixl(settings: StoreSettings, *, encrypted: bool) -> bool:
    """Return whether KV may use NIXL, which does not encrypt: with TLS only if enabled explicitly.

    Args:
        encrypted: whether the cluster uses TLS.
        encrypted: the cluster speaks TLS.
    """
    asked = "peer_transports" in settings.model_fields_set
    uses = NIXL in settings.peer_transports and (asked or not encrypted)
    if encrypted and NIXL in settings.peer_transports:
        why = "tls.cert is set, and NIXL does not encrypt transfers"
        if uses:
            log.warning("kv.nixl.unencrypted", reason=why)
        else:
            log.info("kv.nixl.off", reason=why, setting="store.peer_transports")
    return uses


def nixl_thread(arena: Arena, store_id: str, incarnation: str) -> NixlThread:
    """Return the store's NIXL agent, which is created on first use."""
    return NixlThread(lambda: NixlAgent(agent_name(store_id, incarnation), arena.file))


async def keep_time(store: Store) -> None:
    """Expire what is due, for the lifetime of the store; seldom while it is idle."""
    while True:
        store.activity.clear()
        await asyncio.sleep(TICK_SECONDS)
        store.tick()
        if store.idle:
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_TICK_SECONDS):
                    await store.activity.wait()


async def touch_arena(store: Store, on_usable: Callable[[], None]) -> None:
    """Allocate memory for the arena in the background, step by step.

    Args:
        store: the owner of the arena.
        on_usable: called after each step.
    """
    loop = asyncio.get_running_loop()
    try:
        while True:
            step = loop.run_in_executor(None, store.arena.touch_next)
            try:
                more = await asyncio.shield(step)
            except asyncio.CancelledError:
                await asyncio.wait([step])  # the file must not be closed during it
                raise
            if not more:
                return
            store.grow()
            on_usable()
    except OSError as error:
        log.error(
            "kv.arena.exhausted",
            usable_bytes=store.arena.touched_bytes,
            error=error.strerror,
        )
