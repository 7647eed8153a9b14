"""Runs a local cluster for the duration of its use."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from baton.cli.cluster.local.compiling.background import compile_router
from baton.cli.cluster.local.database import POSTGRES, own_database
from baton.cli.cluster.local.files.local_clusters import LocalCluster, running_clusters
from baton.cli.cluster.local.files.metric_targets import keep_targets
from baton.cli.cluster.local.files.model_files import bundled_model
from baton.cli.cluster.local.files.rundir import RunDirectory
from baton.cli.cluster.local.models.changes import ModelChanges, WorkerBase, require_memory_of
from baton.cli.cluster.local.models.control import serve_changes
from baton.cli.cluster.local.models.local_model import LocalModel
from baton.cli.cluster.local.on_demand.models import OnDemandModels
from baton.cli.cluster.local.on_demand.room import OnDemandRoom, room_of
from baton.cli.cluster.local.on_demand.uses import UseReader
from baton.cli.cluster.local.output.report import Reporter
from baton.cli.cluster.local.output.running_requests import running_requests, waiting_sentence
from baton.cli.cluster.local.plan import (
    available_cores,
    inner_settings,
    plan,
    shared_niceness,
    small_memory,
)
from baton.cli.cluster.local.preparation import Preparation
from baton.cli.cluster.local.processes.child import Child
from baton.cli.cluster.local.processes.supervisor import ETCD, Supervisor
from baton.cli.cluster.local.scaling.autoscaler import Autoscaler
from baton.cli.cluster.local.scaling.bounds import (
    PoolBounds,
    kept_models,
    parse_bounds,
    router_settings,
    worker_settings,
)
from baton.cli.cluster.local.spec import ProcessSpec, ids_of_models, pools_of
from baton.cli.shared.config_file import given_variables
from baton.cli.shared.errors import CommandError
from baton.cli.shared.options import ClusterOptions
from baton.cluster.etcd.client import Etcd
from baton.cluster.etcd.local import LocalEtcd
from baton.host.ports import held_port
from baton.internal.v1.cluster_pb2 import ModelCard
from baton.on_demand.records import TurnWriter
from baton.settings import FrontendSettings
from baton.settings.models import MAX_WORKERS
from baton.telemetry import logs
from baton.worker.kept.forget import forget_kept
from baton.worker.kept.renew import renew_kept

NOTICE_ENV = "BATON_LIMITS_DRAIN_NOTICE_SECONDS"
NOTICE_SECONDS = 0.3
"""Delay for local clients, unless set otherwise: there is no load balancer that must react."""


@dataclass(frozen=True, slots=True)
class RunningCluster:
    """A running cluster."""

    specs: tuple[ProcessSpec, ...]
    name: str
    """Name by which commands find it."""
    models: tuple[LocalModel, ...]
    etcd: tuple[str, ...]
    grpc: str
    http: str
    logs: Path
    """Directory of the processes' log files."""
    metric_targets: Path
    """File with the addresses of metrics, for Prometheus."""
    metrics: Mapping[str, str]
    """`host:port` of each instance's /metrics, by ID."""
    cards: Mapping[str, ModelCard | None]
    """Card of each model that its workers published, by name; None: not yet."""
    start_seconds: float
    tls: bool = False
    """Whether clients use TLS."""
    state_url: str = ""
    """URL of its own Postgres; empty: it runs none."""
    bounds: PoolBounds | None = None
    """Of its pools, which are scaled; None: they are not."""
    room: OnDemandRoom | None = None
    """Of the models that take turns; None: all have workers."""

    @property
    def scheme(self) -> str:
        """URL scheme of the HTTP API."""
        return "https" if self.tls else "http"


class Ended(NamedTuple):
    """How a cluster's life ended."""

    interrupted: bool
    """Whether a signal ended it."""
    logs: Path
    """Directory of the log files, which are kept."""


def run(
    options: ClusterOptions,
    models: tuple[LocalModel, ...],
    body: Callable[[RunningCluster], Awaitable[None]],
    console: Console,
    *,
    demo: bool = False,
) -> Ended:
    """Start a cluster, await `body`, stop the cluster. Call it on the main thread.

    Args:
        options: what to run.
        models: the models to serve.
        body: function that uses the cluster.
        console: where events of processes are printed.
        demo: other commands use the cluster only if they are given its name.

    Returns:
        How it ended. A second signal kills.

    Raises:
        CommandError: the cluster cannot start; its logs are kept.
    """
    return asyncio.run(_run(options, models, body, Reporter(console), demo))


async def _run(
    options: ClusterOptions,
    models: tuple[LocalModel, ...],
    body: Callable[[RunningCluster], Awaitable[None]],
    reporter: Reporter,
    demo: bool,
) -> Ended:
    begun = time.monotonic()
    _require_unused(options.cluster)
    with (
        RunDirectory() as directory,
        directory.supervisor_log.open("w") as log,
        _ports_chosen(options) as options,
    ):
        logs.configure("supervisor", "supervisor", stream=log)
        own_etcd = (
            None
            if options.etcd_endpoints
            else LocalEtcd(directory.etcd_data, log_path=directory.logs / f"{ETCD}.log")
        )
        endpoints = own_etcd.endpoints if own_etcd is not None else options.etcd_endpoints
        bounds = parse_bounds(options.autoscale, MAX_WORKERS)
        room = room_of(options, models)
        memory = worker_settings(bounds, given_variables(options.config, "decode"))
        if room is not None:
            memory |= kept_models(given_variables(options.config, "decode"))
        if all(model.path == bundled_model().resolve() for model in models) and not options.model:
            services = ("prefill", "decode", "kvstore")
            memory |= small_memory(
                set().union(*(given_variables(options.config, service) for service in services))
            )
        noticed = NOTICE_ENV in given_variables(options.config, "frontend")
        frontends: dict[str, str] = {} if noticed else {NOTICE_ENV: f"{NOTICE_SECONDS}"}
        database, state = own_database(
            options.config,
            options.auth,
            directory,
            reporter,
            conversations=options.conversations,
            batches=options.batches,
            webhooks=options.webhooks,
        )
        on_shared_cores = shared_niceness(given_variables(options.config, "decode"))
        cores = available_cores()
        specs = plan(
            options,
            models,
            endpoints,
            cores,
            bounds,
            memory,
            {**frontends, **state},
            on_shared_cores,
            router_settings(bounds, given_variables(options.config, "router")),
            room,
        )
        pools = pools_of(specs)
        parked: set[str] = set()
        if bounds is not None:
            parked = {name for pool in pools for name in pool.ids[bounds.first :]}
        if room is not None:
            waiting = {model.name for model in models[: -room.models]}
            parked = {spec.id for spec in specs if spec.model in waiting}
        children: dict[str, Child] = {} if own_etcd is None else {ETCD: own_etcd}
        if database is not None:
            children[POSTGRES] = database
        preparation = Preparation(options.config, directory, reporter)
        prepared = [preparation.prepare(spec) for spec in specs]
        children |= {one.spec.id: one.child for one in prepared}
        patience = max(one.settings.liveness.patience_seconds for one in prepared)
        front_settings = next(
            one.settings for one in prepared if isinstance(one.settings, FrontendSettings)
        )
        if room is None:
            require_memory_of([one for one in prepared if one.spec.id not in parked])
        else:
            require_memory_of(prepared, models_at_once=room.models)
        compile_router(reporter)
        supervisor = Supervisor(
            children, specs, endpoints, options.cluster, reporter, patience, parked
        )
        interrupted = _SignalHandler(supervisor, reporter)
        view = None
        try:
            await supervisor.start()
            view = supervisor.view
            async with AsyncExitStack() as stack:
                turns = None
                if room is not None:
                    workers = ids_of_models(pools)
                    etcd = await stack.enter_async_context(Etcd(endpoints))
                    turns = OnDemandModels(
                        supervisor,
                        workers,
                        room,
                        UseReader(view.instances.values),
                        TurnWriter(etcd, options.cluster),
                        view.is_kept,
                        partial(renew_kept, etcd, options.cluster),
                        reporter,
                    )
                    await stack.enter_async_context(turns)
                    await turns.start()
                    parked = {name for ids in workers.values() for name in ids}
                    parked -= set(turns.running)
                first = tuple(spec for spec in specs if spec.id not in parked)
                front = view.instances["frontend-0"]
                cluster = RunningCluster(
                    first,
                    options.cluster,
                    models,
                    endpoints,
                    front.address,
                    front.http_address,
                    directory.logs,
                    directory.metric_targets,
                    {spec.id: view.instances[spec.id].metrics_address for spec in first},
                    {model.name: view.card(model.name) for model in models},
                    time.monotonic() - begun,
                    front_settings.public.tls_cert is not None,
                    database.url if database is not None else "",
                    bounds,
                    room,
                )
                await stack.enter_async_context(
                    keep_targets(view, directory.metric_targets, options.cluster)
                )
                changes = ModelChanges(
                    options,
                    models,
                    prepared,
                    preparation,
                    WorkerBase(inner_settings(options, endpoints, memory), on_shared_cores, cores),
                    supervisor,
                    lambda name: forget_kept(endpoints, options.cluster, name),
                    turns=turns,
                    room=room,
                )
                await stack.enter_async_context(serve_changes(directory.control, changes))
                directory.publish(
                    LocalCluster(
                        endpoints,
                        options.cluster,
                        cluster.grpc,
                        cluster.http,
                        cluster.state_url,
                        demo=demo,
                        control=str(directory.control),
                    )
                )
                if bounds is not None:
                    scaler = Autoscaler(supervisor, pools, bounds, view.instances.values, reporter)
                    await stack.enter_async_context(scaler)
                await body(cluster)
        except asyncio.CancelledError:
            if not interrupted:
                raise
        finally:
            interrupted.stopping()
            if interrupted and view is not None:
                own = {spec.id for spec in specs}
                running = await running_requests(i for i in view.instances.values() if i.id in own)
                with suppress(OSError):  # the terminal may be closed
                    reporter.info(waiting_sentence(running, front_settings.drain_seconds))
            await supervisor.stop()
        return Ended(bool(interrupted), directory.logs)


def _require_unused(name: str) -> None:
    """Check that no cluster of this name runs here, because commands find clusters by name.

    Raises:
        CommandError: one does.
    """
    for one in running_clusters():
        if one.cluster == name:
            raise CommandError(
                f"Cluster {name!r} already runs on this machine (OpenAI {one.http}): stop it, or "
                "set another name with --cluster or BATON_ETCD_CLUSTER."
            )


@contextmanager
def _ports_chosen(options: ClusterOptions) -> Iterator[ClusterOptions]:
    """Choose free ports if none are named, so that a restarted frontend gets the same ports."""
    with ExitStack() as stack:
        yield replace(
            options,
            http_port=options.http_port or stack.enter_context(held_port()),
            grpc_port=options.grpc_port or stack.enter_context(held_port()),
        )


class _SignalHandler:
    """Ends the body at the first signal, so that the cluster drains; a second one kills."""

    def __init__(self, supervisor: Supervisor, reporter: Reporter) -> None:
        self._supervisor = supervisor
        self._reporter = reporter
        self._received = False
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._receive)

    def __bool__(self) -> bool:
        return self._received

    def stopping(self) -> None:
        """Make the next signal kill."""
        self._task = None

    def _receive(self) -> None:
        if self._task is None:
            self._supervisor.kill()
        elif not self._received:
            self._received = True
            with suppress(OSError):  # the terminal may be closed
                self._reporter.info("Stopping. Press Ctrl-C again to kill all processes.")
            self._task.cancel()
