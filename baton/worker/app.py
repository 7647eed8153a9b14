"""Compose a worker from its parts. Leaving the exit stack shuts them down in reverse order."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from baton.cluster.etcd.certificate import connect
from baton.cluster.members.discovery import Discovery
from baton.cluster.members.registration import Registration
from baton.engine.base import Engine
from baton.engine.checkpoint.integrity import check_directory
from baton.engine.checkpoint.record import hold_record
from baton.engine.checkpoint.sampling_defaults import read_sampling_defaults
from baton.engine.factory import create_engine
from baton.engine.self_check import check_kv_moves
from baton.engine.support.documents import CheckpointError
from baton.host.priority import can_add_niceness
from baton.internal.v1 import cluster_pb2, worker_pb2_grpc
from baton.kv.client.client import KvStoreClient
from baton.kv.events.service import SERVICE_NAME as KV_EVENTS
from baton.kv.events.service import KvEventService
from baton.kv.verify import ALWAYS
from baton.models.adapters.cache import AdapterCache
from baton.process.lifecycle import Process
from baton.rpc.protocol import PAUSE
from baton.rpc.server.server import Server
from baton.rpc.tls.access import WORKERS
from baton.rpc.transport.links import links
from baton.sampling import SamplingParams
from baton.settings import EngineSettings, StartupError, WorkerSettings
from baton.telemetry import scope
from baton.telemetry.logs import get_logger
from baton.worker.adapters.registered import RegisteredAdapters
from baton.worker.core import WorkerCore
from baton.worker.engine_loop import EngineLoop
from baton.worker.kept.keeper import ModelKeeper
from baton.worker.load import LoadReporter
from baton.worker.readiness import ROUTERS, STORE, wait_routers, wait_store
from baton.worker.records import (
    NO_DEFAULTS,
    adapter_records,
    check_names,
    model_card,
    operators_record,
)
from baton.worker.service import WorkerService
from baton.worker.wire.tokenizer_files import TokenizerFiles

DECODE_CHUNK_TOKENS = 32
"""Default prompt tokens per step of a decode worker; small, so that other streams keep decoding."""
log = get_logger(__name__)

ROLES = {
    "prefill": cluster_pb2.ROLE_PREFILL,
    "decode": cluster_pb2.ROLE_DECODE,
    "combined": cluster_pb2.ROLE_COMBINED,
}


async def compose(
    process: Process,
    settings: WorkerSettings,
    make_engine: Callable[[EngineSettings], Engine] = create_engine,
) -> None:
    """Load the model, attach to the store, serve, register.

    Args:
        process: the process in which the worker runs.
        settings: of the worker.
        make_engine: creates the engine that the settings select.

    Raises:
        StartupError: the checkpoint cannot be served; the text gives the reason.
    """
    stack, readiness = process.stack, process.readiness
    readiness.wait_for("engine", "the model is loading")
    readiness.wait_for(STORE, f"not attached to {settings.kv.store_id or 'a store'}")
    readiness.wait_for("registration", "etcd has no record of this worker")
    readiness.wait_for(ROUTERS, "no router watches this worker yet")
    tls = await stack.enter_async_context(links(settings, WORKERS))
    if settings.kv.verify != ALWAYS:
        log.warning("kv.verify.reduced", verify=settings.kv.verify)
    check_cores(settings.engine.cores)
    check_nice(settings.engine.nice)
    tokenizer = _read_tokenizer(settings.engine.model)
    if settings.engine.model is not None:
        lock = hold_record(settings.engine.model)
        if lock is not None:
            stack.callback(os.close, lock)
    engine_loop = EngineLoop(
        lambda: make_engine(_engine_settings(settings)),
        lambda error: process.die(f"the engine failed: {error!r}"),
        settings.engine.cores,
        process.liveness.clock.now,
        settings.engine.nice,
        # The simulator has no KV of its own to transfer incorrectly: its transfers are covered by
        # tests.
        check_kv_moves if settings.engine.self_check and settings.engine.kind != "sim" else None,
    )
    process.liveness.watch("engine", lambda: engine_loop.busy_since)
    engine = await engine_loop.start()
    stack.push_async_callback(engine_loop.stop)
    readiness.done("engine")
    model = settings.engine.model_name or (
        settings.engine.model.name if settings.engine.model else "sim"
    )
    scope.current().labels["model"] = model
    etcd = await stack.enter_async_context(connect(settings.etcd, settings.tls))
    discovery = await stack.enter_async_context(
        Discovery(etcd, settings.etcd.cluster, settings.etcd)
    )
    others = (one for one in discovery.instances.values() if one.id != process.instance_id)
    check_names(model, engine.info, others)
    store = await stack.enter_async_context(
        KvStoreClient(
            lambda: store_address(discovery, settings.kv.store_id),
            process.instance_id,
            process.incarnation,
            settings=settings.kv,
        )
    )

    core = WorkerCore(
        engine,
        engine_loop,
        store,
        model,
        process.incarnation,
        settings.kv,
        settings.limits,
        AdapterCache(settings.engine.adapter_cache, settings.engine.adapter_cache_bytes),
    )
    stack.callback(core.close)
    process.spawn(core.publish(), "publish")
    if settings.engine.kv_idle_seconds:
        process.spawn(core.evict_idle_blocks(settings.engine.kv_idle_seconds), "idle KV")

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
    load = LoadReporter(core, process.instance_id, process.incarnation, settings.load)
    service = WorkerService(core, load, tokenizer)
    server.add(
        lambda grpc_server: worker_pb2_grpc.add_WorkerServiceServicer_to_server(
            service, grpc_server
        ),
        "baton.internal.v1.WorkerService",
    )
    events = KvEventService(core.block_events, settings.events)
    server.add(events.register, KV_EVENTS)
    await server.start()

    # Without a store all KV is computed here: wait briefly for one before accepting requests.
    attached = await store.wait_connected(settings.kv.connect_seconds)
    if not attached:
        log.warning("kv.store.unavailable", peer=settings.kv.store_id)
    store_id = store.store_id or settings.kv.store_id
    instance = _instance(process, settings, core, model, server.address, store_id)
    instance.shm_domain = store.shm_domain
    card = model_card(engine.info, model, _sampling_defaults(settings.engine))
    if tokenizer is not None:
        instance.tokenizer_digest = card.tokenizer_digest = tokenizer.digest
        card.tokenizer_bytes = tokenizer.size
    registration = await stack.enter_async_context(
        Registration(
            etcd,
            settings.etcd.cluster,
            instance,
            [card],
            settings.etcd,
        )
    )

    if engine.info.adapter_limits is not None:
        registered = RegisteredAdapters(
            model, engine.info.adapter_limits, core.adapters, core.resident, core.downloads
        )

        async def adapters_changed() -> None:
            await registration.update(adapters=adapter_records(core.adapters.current))

        process.spawn(registered.run(etcd, settings.etcd.cluster, adapters_changed), "adapters")
    if settings.cluster.model_keep_seconds and tokenizer is not None:
        keep_seconds = settings.cluster.model_keep_seconds
        keeper = ModelKeeper(etcd, settings.etcd.cluster, card, tokenizer, keep_seconds)
        process.spawn(keeper.run(), "kept model")
    process.ready_when("registration", registration.wait_registered())
    if attached:
        readiness.done(STORE)
    elif settings.kv.store_id:
        process.ready_when(STORE, wait_store(store, registration))
    else:  # no store is known
        readiness.done(STORE)
        process.spawn(wait_store(store, registration), "store")
    limit = settings.limits.ready_seconds
    process.ready_when(ROUTERS, wait_routers(readiness, registration, discovery, load, limit))

    async def drain() -> None:
        core.drain()
        log.info("worker.streams.handing_over", streams=len(core.streams))
        service.hand_over()  # etcd may be unavailable: nothing waits for it
        await registration.update(draining=True)
        await core.wait_idle()

    process.on_drain(drain)
    readiness.follow(server.set_ready)


def store_address(discovery: Discovery, store_id: str) -> str | None:
    """Return the address of the worker's store; None while no such store is registered.

    An empty id selects the first store by id, which is correct on a host with a single store.
    """
    stores = discovery.by_role(cluster_pb2.ROLE_KVSTORE)
    own = [store for store in stores if store_id in ("", store.id)]
    return min(own, key=lambda store: store.id).address if own else None


def check_cores(cores: Sequence[int]) -> None:
    """Check that this process may use the cores on which it is to compute.

    Raises:
        StartupError: it may not; the text names the cores.
    """
    if not cores:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise StartupError(
            "This system does not support thread affinity: unset BATON_ENGINE_CORES."
        )
    usable = os.sched_getaffinity(0)
    if missing := sorted(set(cores) - usable):
        raise StartupError(
            f"BATON_ENGINE_CORES has {','.join(map(str, missing))}, and this process may only use "
            f"{','.join(map(str, sorted(usable)))}: use some of these."
        )


def check_nice(nice: int) -> None:
    """Check that threads can have a higher niceness than their process on this system.

    Raises:
        StartupError: they cannot.
    """
    if nice and not can_add_niceness():
        raise StartupError(
            "This system does not support thread niceness: set BATON_ENGINE_NICE to 0."
        )


def _engine_settings(settings: WorkerSettings) -> EngineSettings:
    engine = settings.engine
    if settings.role == "decode" and not engine.decode_chunk_tokens:
        return engine.model_copy(update={"decode_chunk_tokens": DECODE_CHUNK_TOKENS})
    return engine


def _read_tokenizer(directory: Path | None) -> TokenizerFiles | None:
    """Return the files of the model's tokenizer, which frontends fetch; None if it has none.

    Raises:
        StartupError: a file cannot be read, the files are too long, or one of the checkpoint's
            leads out of its directory.
    """
    if directory is not None:
        try:
            check_directory(directory)
        except CheckpointError as error:
            raise StartupError(str(error)) from error
    if directory is None or not (directory / "tokenizer.json").exists():
        log.warning("worker.tokenizer.absent", directory=str(directory or ""))
        return None
    try:
        return TokenizerFiles.read(directory)
    except (OSError, ValueError) as error:
        raise StartupError(f"The model's tokenizer cannot be served: {error}.") from error


def _sampling_defaults(settings: EngineSettings) -> SamplingParams:
    """Return the default sampling parameters, for requests that do not set them.

    Raises:
        StartupError: the checkpoint recommends an invalid value.
    """
    if settings.model is None or settings.sampling_defaults == "none":
        return NO_DEFAULTS
    try:
        return read_sampling_defaults(settings.model)
    except CheckpointError as error:
        raise StartupError(str(error)) from error


def _instance(
    process: Process,
    settings: WorkerSettings,
    core: WorkerCore,
    model: str,
    address: str,
    store_id: str,
) -> cluster_pb2.Instance:
    return cluster_pb2.Instance(
        id=process.instance_id,
        incarnation=process.incarnation,
        role=ROLES[settings.role],
        address=address,
        layout_id=core.engine.info.layout.layout_id,
        model=model,
        features=(*core.engine.info.features, PAUSE),
        store_id=store_id,
        metrics_address=process.metrics_address,
        adapters=adapter_records(core.adapters.current),
        inexact_continuation=not core.engine.info.exact_continuation,
        operators=operators_record(core.engine.info),
    )
