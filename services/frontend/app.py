"""The frontend's composition: its parts, and the order in which they start and stop."""

import asyncio
from contextlib import AsyncExitStack
from functools import partial

from baton.auto.classifier import Classifier, load_classifier
from baton.cluster import keys
from baton.cluster.etcd.certificate import connect
from baton.cluster.etcd.client import Etcd
from baton.cluster.follow import follow
from baton.cluster.forgotten import ForgottenTenants
from baton.cluster.members.discovery import Discovery
from baton.cluster.members.registration import Registration
from baton.cluster.refusals import SharedRefusals
from baton.cluster.tenants import CacheSalts
from baton.conversations.opening import open_conversations
from baton.conversations.pending.notices import PendingNotices
from baton.host.networks import AllowedNetworks
from baton.internal.v1 import cluster_pb2
from baton.on_demand.records import TurnRecords
from baton.postgres.database import open_database
from baton.process.process import Process
from baton.request.prices import PriceTable
from baton.rpc.server.server import Server
from baton.rpc.tls.mutual import MutualTls
from baton.rpc.tls.public import public_tls
from baton.rpc.transport.client_addresses import ClientAddresses
from baton.rpc.transport.links import links
from baton.rpc.transport.unfinished import Unfinished
from baton.settings import AuthSettings, AutoSettings, FrontendSettings, StartupError
from baton.telemetry.logs import get_logger
from baton.tenancy.directory.uses import LastUses
from baton.tenancy.directory.watch import DirectoryWatch
from baton.usage.recording import recording
from baton.v1 import conversations_pb2_grpc, inference_pb2_grpc
from baton.webhooks.opening import open_webhooks
from baton.webhooks.outbox import EventOutbox
from baton.worker.kept.reader import KeptTokenizers
from services.frontend.access.authenticator import (
    Authenticator,
    KeyAuthentication,
    NoAuthentication,
)
from services.frontend.access.request_limits import RequestLimits
from services.frontend.admin.call import Organizations
from services.frontend.admin.routes import OrganizationRoutes
from services.frontend.admin.usage.reader import UsageReader
from services.frontend.conversations.servicer import ConversationServicer
from services.frontend.conversations.turns import MessageTurns
from services.frontend.generation.accounting.keeping import RequestKeeper
from services.frontend.generation.accounting.metering import Metering, no_budget
from services.frontend.generation.assigned.suspects import REFUSE_SECONDS, Suspects
from services.frontend.generation.availability import Availability
from services.frontend.generation.factory import GenerationFactory
from services.frontend.generation.inference import Inference
from services.frontend.grpc.recording import CONVERSATIONS, INFERENCE, record_call
from services.frontend.grpc.servicer import InferenceServicer
from services.frontend.http.cors import CorsMiddleware
from services.frontend.http.middleware import RequestMiddleware
from services.frontend.http.server import HttpServer
from services.frontend.models.adapters import AdapterRecords
from services.frontend.models.aliases import Aliases
from services.frontend.models.auto import CurrentRules
from services.frontend.models.loader import TokenizerLoader
from services.frontend.models.policies import Policies
from services.frontend.models.providers import ProvidedModels
from services.frontend.models.registry import Registry
from services.frontend.openai.batches.handlers import BatchHandlers
from services.frontend.openai.batches.opening import open_batches
from services.frontend.openai.completions.stored import StoredCompletions
from services.frontend.openai.conversations.handlers import ConversationHandlers
from services.frontend.openai.conversations.operations import ConversationOperations
from services.frontend.openai.files.handlers import FileHandlers
from services.frontend.openai.handlers import Handlers
from services.frontend.openai.responses.background.opening import open_background
from services.frontend.openai.responses.compaction.compactor import open_compactor
from services.frontend.openai.responses.compaction.handler import CompactHandler
from services.frontend.openai.responses.handler import ResponsesHandlers
from services.frontend.openai.responses.input.prepare import ResponsePreparer
from services.frontend.openai.responses.input.sealing import ItemSeals
from services.frontend.openai.responses.stored import StoredResponses
from services.frontend.openai.webhooks.handlers import WebhookHandlers
from services.frontend.placement.line_room import LineRoom
from services.frontend.placement.model_waits import ModelWaits
from services.frontend.placement.placement import PlacementFinder
from services.frontend.placement.router_client import RouterClient
from services.frontend.placement.waiting import WorkerWaitQueue
from services.frontend.providers.upstreams import Upstreams
from services.frontend.requests.claims import Claims
from services.frontend.routes import route_table, routed_app
from services.frontend.text.tokenizer import TokenizerThreads
from services.frontend.workers.pool import WorkerPool

_IDLE_SECONDS = 1.0
"""Idle time before closing a connection whose client received no notice, when the frontend stops:
its next request may be in flight."""
_LEAVE_SECONDS = 3.0
"""Time to leave for gRPC clients that connected during the notice, and received theirs after it."""

KEYS_PART = "keys"
"""Readiness: no key is rejected only because it is not known yet."""

log = get_logger(__name__)


async def compose(process: Process, settings: FrontendSettings) -> None:
    """Start a frontend; return when it serves: once there is a model that can be used.

    Until then its ports are bound and clients are rejected: with other frontends on the same ports,
    or behind a load balancer, they connect to one that serves.
    """
    stack, readiness = process.stack, process.readiness
    readiness.wait_for("registration", "etcd has no record of this frontend")
    internal = await stack.enter_async_context(links(settings, ["frontend"]))
    public = await stack.enter_async_context(
        public_tls(settings.public, settings.tls.check_seconds)
    )
    limits = settings.limits
    threads = TokenizerThreads(limits.max_tokenizing)
    stack.callback(threads.close)
    cluster = settings.etcd.cluster
    etcd = await stack.enter_async_context(connect(settings.etcd, settings.tls))
    discovery = await stack.enter_async_context(Discovery(etcd, cluster, settings.etcd))
    pool = await stack.enter_async_context(
        WorkerPool(discovery.report_unreachable, discovery.has_died, settings.workers)
    )
    aliases = Aliases()
    process.spawn(follow(etcd, keys.aliases(cluster), aliases), "follow aliases")
    policies = Policies()
    process.spawn(follow(etcd, keys.policies(cluster), policies), "follow policies")
    provided = ProvidedModels()
    upstreams = await stack.enter_async_context(
        Upstreams(AllowedNetworks(settings.providers.allowed_networks))
    )
    auto = CurrentRules()
    process.spawn(follow(etcd, keys.auto(cluster), auto), "follow auto")
    adapters = AdapterRecords()
    process.spawn(follow(etcd, keys.adapters(cluster), adapters), "follow adapters")
    registry = Registry(pool.usable, aliases, provided, auto, adapters)
    process.spawn(follow(etcd, keys.turns(cluster), TurnRecords(registry.set_turns)), "turns")
    loader = await stack.enter_async_context(
        TokenizerLoader(
            registry,
            lambda: discovery.instances.values(),
            settings.workers,
            KeptTokenizers(etcd, cluster, lambda: discovery.kept),
        )
    )
    authenticator, watch = await _authenticator(process, settings.auth, etcd, cluster)
    claims = Claims()
    router_client = await stack.enter_async_context(
        RouterClient(
            partial(discovery.by_role, cluster_pb2.ROLE_ROUTER),
            discovery.report_unreachable,
            claims.supersede,
            settings.placement,
        )
    )
    # Also without keys: routers query every frontend's charges, which may be none.
    limited = RequestLimits(router_client, process.incarnation)
    process.spawn(limited.follow(discovery), "limits' owners")
    process.spawn(limited.run_ticks(), "limits' ticks")
    request_limits = None if settings.auth.mode == "off" else limited
    waiting = WorkerWaitQueue(limits, settings.cluster.model_start_seconds)
    suspects = Suspects()
    refusals = await stack.enter_async_context(
        SharedRefusals(etcd, cluster, REFUSE_SECONDS, suspects.add_refused, suspects.lift)
    )
    suspects.on_refused = refusals.add
    availability = Availability(registry, loader, pool, router_client, waiting, readiness)

    def providers_changed() -> None:
        if provided.known:
            upstreams.load()
        availability.update()

    provided.on_change = providers_changed
    process.spawn(follow(etcd, keys.providers(cluster), provided), "follow providers")
    process.spawn(availability.follow(discovery), "follow-cluster")
    process.spawn(availability.keep_asking(), "ask for workers again")
    database = await stack.enter_async_context(open_database(settings.state))
    notices, forgotten = PendingNotices(etcd, cluster), ForgottenTenants()
    process.spawn(follow(etcd, keys.forgotten(cluster), forgotten), "follow deleted tenants")
    conversations = await stack.enter_async_context(
        open_conversations(settings.state, settings.conversations, notices, forgotten)
    )
    spool = await stack.enter_async_context(recording(settings.usage, database, forgotten))
    cache_salts = CacheSalts(etcd, cluster)
    process.spawn(cache_salts.keep(discovery.etcd_recovered), "keep salts")
    process.spawn(follow(etcd, keys.salts(cluster), cache_salts), "follow salts")
    webhooks = await stack.enter_async_context(
        open_webhooks(settings.state, settings.webhooks, cache_salts)
    )
    has_budget = no_budget if request_limits is None else request_limits.has_budget
    keeper = RequestKeeper(router_client.keep, settings.history.sample_ratio)
    metering = Metering(spool, keeper.ended, process.instance_id, has_budget)
    factory = GenerationFactory(
        pool,
        PlacementFinder(router_client, pool, lambda: discovery.instances),
        waiting,
        suspects,
        claims,
        cache_salts,
        threads,
        settings,
        metering,
        upstreams,
    )
    prices = PriceTable(settings.usage.prices)
    waits = ModelWaits(router_client.wait_seconds)
    stack.push_async_callback(waits.close)
    inference = Inference(
        registry,
        factory,
        waiting,
        suspects,
        threads,
        settings,
        metering,
        request_limits,
        prices,
        policies,
        waits.of,
        _classifier(stack, settings.auto),
    )
    addresses = ClientAddresses(settings.public.max_connections_per_address)
    unfinished = Unfinished(settings.public.max_unfinished_bytes)
    server = await stack.enter_async_context(
        Server(
            settings.grpc,
            process.name,
            settings.advertise_host,
            process.incarnation,
            on_call_end=record_call,
            stall_seconds=limits.stall_seconds,
            tls=public,
            max_fields=limits.max_message_fields,
            max_connection_age_seconds=limits.max_connection_age_seconds,
            max_connection_grace_seconds=limits.max_connection_grace_seconds,
            addresses=addresses,
            unfinished=unfinished,
        )
    )
    servers = [server]
    if internal is not None or public is not None:
        checked = await stack.enter_async_context(_health_server(process, settings, internal))
        servers.append(checked)
    servicer = InferenceServicer(inference, authenticator, limits.max_session_requests)
    server.add(
        partial(inference_pb2_grpc.add_InferenceServiceServicer_to_server, servicer), INFERENCE
    )
    usage = UsageReader(database, settings.usage.provider_prices, settings.state.connections)
    organizations = None
    if watch is not None:
        locations = settings.adapters.allowed_locations
        organizations = Organizations(etcd, cluster, watch, usage, locations)
    seals = ItemSeals(cache_salts)
    preparer = ResponsePreparer(
        seals,
        conversations,
        limits.max_messages,
        unknown=settings.http.unknown_fields == "ignore",
    )
    compactor = await stack.enter_async_context(open_compactor(conversations, inference, preparer))
    background = await stack.enter_async_context(
        open_background(
            conversations,
            inference,
            preparer,
            compactor,
            authenticator,
            process.instance_id,
            settings.http.keep_alive_seconds,
            EventOutbox(),
        )
    )
    room = LineRoom(settings.batches.max_running)
    if settings.files.url and settings.batches.max_running:
        router_client.on_line_room = room.tell
    batches = await stack.enter_async_context(
        open_batches(
            settings, inference, preparer, authenticator, metering, process.instance_id, room
        )
    )
    running = None if background is None else background.responses
    responses = ResponsesHandlers(
        inference, settings.http, limits, preparer, conversations, running, compactor
    )
    operations = ConversationOperations(conversations, seals)
    stored = StoredResponses(conversations, running)
    turns = MessageTurns(operations, inference, preparer, conversations, compactor)
    conversing = ConversationServicer(
        operations, stored, turns, authenticator, limits.max_body_values
    )
    server.add(
        partial(conversations_pb2_grpc.add_ConversationServiceServicer_to_server, conversing),
        CONVERSATIONS,
    )
    completions = None if conversations is None else conversations.completions
    table = route_table(
        Handlers(inference, settings.http, limits, completions),
        responses,
        CompactHandler(inference, settings.http, limits, preparer),
        stored,
        ConversationHandlers(operations, responses, settings.http, limits),
        StoredCompletions(completions, settings.http, limits),
        FileHandlers(None if batches is None else batches.files),
        BatchHandlers(batches, webhooks, settings.http, limits),
        WebhookHandlers(webhooks, settings.http, limits),
        OrganizationRoutes(organizations, settings.http),
        metrics=settings.public.metrics,
    )
    routes = routed_app(table, authenticator, inference)
    http = HttpServer(
        CorsMiddleware(RequestMiddleware(routes), settings.http.cors_origins),
        settings.http,
        limits.stall_seconds,
        None if public is None else public.http_context,
        limits.max_connection_age_seconds,
        addresses,
        unfinished,
    )
    await stack.enter_async_context(http)
    http.bind()
    server.bind()
    log.info(
        "frontend.startup.waiting", reason="no model is available yet", etcd_listed=discovery.synced
    )
    await availability.wait_first()
    await aliases.wait_synced()
    await adapters.wait_synced()
    await policies.wait_synced()
    await provided.wait_synced()
    await auto.wait_synced()
    if watch is not None:
        await watch.wait_synced()
    await http.start()
    for one in servers:
        await one.start()
        readiness.follow(one.set_ready)
    stack.push_async_callback(inference.stop)
    registration = await stack.enter_async_context(
        Registration(
            etcd,
            cluster,
            cluster_pb2.Instance(
                id=process.instance_id,
                incarnation=process.incarnation,
                role=cluster_pb2.ROLE_FRONTEND,
                address=server.address,
                http_address=_address(settings, http.port),
                metrics_address=process.metrics_address,
                health_address=servers[-1].address if len(servers) > 1 else "",
            ),
            settings=settings.etcd,
        )
    )

    notice_seconds = min(limits.drain_notice_seconds, settings.drain_seconds / 2)

    if background is not None:
        process.spawn(background.runs.run(), "responses in the background")
    if batches is not None:
        process.spawn(batches.estimates.run(), "estimates of batches")
    if batches is not None and batches.runner is not None:
        process.spawn(batches.deadlines.run(), "deadlines of batches")
        process.spawn(batches.results.run(), "results of batches")
        process.spawn(batches.runner.run(), "batches")
    if webhooks is not None:
        process.spawn(webhooks.delivery.run(), "deliveries of events")
    process.ready_when("registration", registration.wait_registered())

    async def drain() -> None:
        inference.draining = True
        # New connections arrive until load balancers have noticed: all are served.
        server.retire_connections()
        http.retire_connections()
        noticed = asyncio.get_running_loop().time() + notice_seconds
        await registration.update(draining=True)
        if background is not None:
            await background.runs.hand_over()
        if batches is not None and batches.runner is not None:
            await batches.runner.hand_over()
        await asyncio.sleep(noticed - asyncio.get_running_loop().time())
        server.stop_listening()
        servicer.drain()
        await http.close_connections(min(notice_seconds, _IDLE_SECONDS))
        await inference.idle()
        # Clients that connected meanwhile received notice only now: their calls may be in flight.
        await server.wait_left(_LEAVE_SECONDS)
        await inference.idle()
        if background is not None:
            await background.runs.idle()
        if request_limits is not None:
            await request_limits.close()

    process.on_drain(drain)


async def _authenticator(
    process: Process, settings: AuthSettings, etcd: Etcd, cluster: str
) -> tuple[Authenticator, DirectoryWatch | None]:
    """Return the authenticator, and the directory of keys; None: no keys are needed."""
    if settings.mode == "off":
        return NoAuthentication(), None
    process.readiness.wait_for(KEYS_PART, "API keys are not loaded from etcd yet")
    watch = await process.stack.enter_async_context(DirectoryWatch(etcd, cluster))
    process.ready_when(KEYS_PART, watch.wait_synced())
    uses = await process.stack.enter_async_context(LastUses(etcd, cluster))
    return KeyAuthentication(watch.directory, uses), watch


def _classifier(stack: AsyncExitStack, settings: AutoSettings) -> Classifier | None:
    """Return the classifier of requests for `auto`; None: there is none.

    Raises:
        StartupError: it cannot be imported.
    """
    if not settings.classifier:
        return None
    try:
        classify = load_classifier(settings.classifier)
    except ValueError as error:
        raise StartupError(f"auto.classifier: {error}.") from error
    classifier = Classifier(classify)
    stack.callback(classifier.close)
    return classifier


def _health_server(process: Process, settings: FrontendSettings, tls: MutualTls | None) -> Server:
    """Return the server of the cluster's health checks if these do not use the clients' protocol.
    It serves nothing else, so that no other process has to trust the clients' certificate."""
    grpc = settings.grpc.model_copy(update={"port": settings.health_port, "reuse_port": False})
    return Server(grpc, process.name, settings.advertise_host, process.incarnation, tls=tls)


def _address(settings: FrontendSettings, port: int) -> str:
    host = settings.advertise_host or settings.http.host
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
