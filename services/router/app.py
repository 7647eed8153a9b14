"""Compose a router: leaving the stack undoes it in reverse."""

import asyncio
from functools import partial

from baton.cluster import keys
from baton.cluster.etcd.certificate import connect
from baton.cluster.follow import follow
from baton.cluster.members.discovery import Discovery
from baton.cluster.members.registration import Registration
from baton.history.history import History
from baton.internal.v1.cluster_pb2 import ROLE_ROUTER, CompiledPart, Instance
from baton.on_demand.records import TurnRecords
from baton.process.lifecycle import Process
from baton.rpc.server.server import Server
from baton.rpc.transport.links import links
from baton.settings import RouterQueue, RouterScaling, RouterSettings, StartupError
from baton.telemetry.logs import get_logger
from services.router.admission.controller import AdmissionController
from services.router.admission.shares.tenants import TenantShares
from services.router.admission.shares.tiers import TierPolicy
from services.router.admission.waiting import QueueSettings
from services.router.api.budget_records import BudgetRecords
from services.router.api.dispatcher import MakeAdmission, QueryDispatcher
from services.router.api.limits import LimitBuckets
from services.router.api.service import SERVICE_NAME, RouterService
from services.router.needs.publisher import NeedPublisher
from services.router.needs.shared import SharedDemand
from services.router.policy.compiled.scorer import choose_scorer
from services.router.policy.costs import Policy
from services.router.policy.placement_service import PlacementService
from services.router.prefix_index.blocks.table import choose_table
from services.router.prefix_index.index import PrefixIndex
from services.router.recording.recorded import RecordedFleet
from services.router.recording.recorded_admission import RecordedAdmission
from services.router.recording.recorder import Recorder
from services.router.sizing.demand import DemandLog
from services.router.sizing.settings import SizingSettings
from services.router.state.fleet import Fleet
from services.router.state.rates import Bandwidths
from services.router.state.tickets import TicketTable
from services.router.watch.cluster_watch import ClusterWatch
from services.router.watch.team_records import TIERS, ClassRecords, TenantRecords

log = get_logger(__name__)


async def compose(process: Process, settings: RouterSettings) -> None:
    """Watch the cluster, serve, register; return once the cluster is known, and then ready.

    Until then, frontends use other routers, or place by what they know themselves.
    """
    stack, readiness = process.stack, process.readiness
    readiness.wait_for("cluster", "waiting for etcd, or for the workers' load reports")
    readiness.wait_for("registration", "etcd has no record of this router")
    tls = await stack.enter_async_context(links(settings, ["router"]))
    cluster = settings.etcd.cluster
    etcd = await stack.enter_async_context(connect(settings.etcd, settings.tls))
    discovery = await stack.enter_async_context(Discovery(etcd, cluster, settings.etcd))

    # The incarnation keeps ticket ids of a restarted router distinct from its predecessor's.
    router_id = f"{process.instance_id}/{process.incarnation[:8]}"
    limits, placement, recording = settings.limits, settings.placement, settings.recording
    sizing = _sizing_settings(settings.scaling)
    bandwidths = Bandwidths(placement.remote_bytes_per_second, placement.local_bytes_per_second)
    policy = Policy(
        disaggregation=placement.disaggregation,
        max_queue_seconds=placement.max_queue_seconds,
        itl_target=placement.itl_target_seconds,
    )
    silence = settings.watch.silence_seconds
    recorder = None
    if recording.path is not None:
        try:
            recorder = Recorder(recording.path / router_id.replace("/", "-"), recording.max_bytes)
        except OSError as error:
            raise StartupError(f"recording.path: {error.filename}: {error.strerror}.") from error
        process.spawn(recorder.run(), "recorder")
        fleet: Fleet = RecordedFleet(router_id, policy, bandwidths, silence, recorder.write)
        uncompiled = "recording.path is set"
    else:
        table = choose_table()
        uncompiled = table.reason
        index = PrefixIndex(table=table.taken)
        fleet = Fleet(index, TicketTable(router_id), bandwidths, silence)
    scorer = choose_scorer()
    placements, tenants = PlacementService(fleet, policy, scorer.taken), TenantShares()
    make_admission: MakeAdmission = AdmissionController
    if recorder is not None:
        make_admission = partial(RecordedAdmission, recorder.write)
    dispatcher = QueryDispatcher(
        placements,
        _queue_settings(settings.queue),
        tenants.of,
        make_admission=make_admission,
        demand=DemandLog(sizing.arrival_seconds),
    )
    classes = ClassRecords(dispatcher.set_policy)
    process.spawn(follow(etcd, keys.tenants(cluster), TenantRecords(tenants)), "tenants' records")
    process.spawn(follow(etcd, keys.classes(cluster), classes), "classes' records")
    turns = TurnRecords(dispatcher.set_turns)
    process.spawn(follow(etcd, keys.turns(cluster), turns), "models' turns")
    watch = ClusterWatch(
        discovery,
        fleet,
        settings.watch,
        process.instance_id,
        dispatcher.wake,
        dispatcher.set_gauges,
    )
    process.spawn(watch.run(), "cluster watch")
    process.spawn(watch.run_maintenance(), "maintenance")

    server = await stack.enter_async_context(
        Server(
            settings.grpc,
            process.name,
            settings.advertise_host,
            process.incarnation,
            tls=tls,
            liveness=settings.liveness,
        )
    )
    buckets = LimitBuckets(process.incarnation, discovery.report_unreachable)
    process.spawn(buckets.follow(discovery), "limits' owners")
    process.spawn(buckets.run_sweeps(), "limits' sweeps")
    budgets = BudgetRecords(etcd, cluster, buckets.ledger, buckets.serve)
    buckets.on_unread = budgets.wake
    process.spawn(budgets.keep_reading(), "budgets' records")
    process.spawn(budgets.keep_writing(), "budgets' spending")
    history = None
    kept = settings.history
    if kept.path is not None:
        history = History(kept.path, kept.max_bytes, kept.max_seconds)
        await stack.enter_async_context(history)
    service = RouterService(dispatcher, limits, buckets, history)
    server.add(service.register, SERVICE_NAME)
    await server.start()
    await watch.wait_ready(limits.ready_seconds)
    service.open()
    readiness.done("cluster")
    shared = SharedDemand(
        etcd,
        cluster,
        process.instance_id,
        lambda: (one.id for one in discovery.by_role(ROLE_ROUTER)),
    )
    process.spawn(shared.follow(), "other routers' demand")
    process.spawn(shared.keep_written(), "demand")
    publisher = NeedPublisher(dispatcher, shared, sizing, placement.itl_target_seconds)
    process.spawn(publisher.run(), "needed replicas")
    readiness.follow(server.set_ready)
    instance = Instance(
        id=process.instance_id,
        incarnation=process.incarnation,
        role=ROLE_ROUTER,
        address=server.address,
        metrics_address=process.metrics_address,
        compiled_parts=(
            _compiled_part("prefix index", "a dict", uncompiled),
            _compiled_part("scores", "array operations", scorer.reason),
        ),
    )
    registration = await stack.enter_async_context(
        Registration(etcd, cluster, instance, settings=settings.etcd)
    )

    process.ready_when("registration", registration.wait_registered())

    async def drain() -> None:
        await registration.update(draining=True)
        service.begin_drain()
        # Frontends see that the router drains and move to another one before their streams end.
        await asyncio.sleep(limits.drain_notice_seconds)
        service.stop()
        await budgets.flush()
        await shared.leave()
        await server.drain(limits.drain_flush_seconds)

    process.on_drain(drain)


def _queue_settings(queue: RouterQueue) -> QueueSettings:
    return QueueSettings(
        gate=queue.gate_seconds,
        age=queue.age,
        window=queue.window,
        refresh=queue.refresh_seconds,
        max_wait=queue.max_wait_seconds,
        max_tenant=queue.max_tenant,
        max_total=queue.max_total,
        tiers=TierPolicy(
            weights=tuple(queue.tier_weights[tier] for tier in TIERS),
            floors=tuple(queue.tier_floors[tier] for tier in TIERS),
            strict=queue.tier_order == "strict",
        ),
    )


def _sizing_settings(scaling: RouterScaling) -> SizingSettings:
    try:
        return SizingSettings(
            min_replicas=scaling.min_replicas,
            max_replicas=scaling.max_replicas,
            utilization=scaling.utilization,
            occupancy=scaling.occupancy,
            arrival_seconds=scaling.arrival_seconds,
            backlog_seconds=scaling.backlog_seconds,
            ttft_target=scaling.ttft_target_seconds,
            hold_seconds=scaling.hold_seconds,
            idle_seconds=scaling.idle_seconds,
        )
    except ValueError as error:
        raise StartupError(f"scaling: {error}.") from error


def _compiled_part(name: str, fallback: str, reason: str) -> CompiledPart:
    """Return the registration entry of a part that may be compiled, and log it."""
    log.info(
        "router.implementation.selected",
        part=name,
        fallback=fallback if reason else "",
        reason=reason,
    )
    return CompiledPart(name=name, fallback=fallback if reason else "", reason=reason)
