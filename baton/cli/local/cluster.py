"""Runs a local cluster around something that uses it."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from baton.cli.errors import CommandError
from baton.cli.local.checks import settings_of
from baton.cli.local.child import Child, ServiceProcess
from baton.cli.local.plan import HOST, Spec, Wanted, cores_here, plan, small_memory
from baton.cli.local.ports import require_free
from baton.cli.local.report import Report
from baton.cli.local.rundir import LocalCluster, RunDirectory
from baton.cli.local.supervisor import ETCD, Supervisor
from baton.cluster.local_etcd import LocalEtcd, free_port
from baton.settings import FrontendSettings
from baton.telemetry import logs

STOP_SLACK_SECONDS = 7.0
"""A process that drains for its time and then for this long is killed."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that serves."""

    specs: tuple[Spec, ...]
    model: str
    etcd: tuple[str, ...]
    grpc: str
    http: str
    logs: str
    writers: int
    """Workers that write answers."""
    start_seconds: float


def run(
    wanted: Wanted,
    model: Path,
    body: Callable[[Cluster], Awaitable[None]],
    console: Console,
) -> bool:
    """Start a cluster, await `body`, stop the cluster. Call it on the main thread.

    Returns:
        Whether `body` came to its end; False if a signal ended it. A second signal kills.

    Raises:
        CommandError: the cluster cannot start; its logs are kept.
    """
    return asyncio.run(_run(wanted, model, body, Report(console)))


async def _run(
    wanted: Wanted,
    model: Path,
    body: Callable[[Cluster], Awaitable[None]],
    report: Report,
) -> bool:
    begun = time.monotonic()
    with RunDirectory() as directory, (directory.path / "supervisor.log").open("w") as log:
        logs.configure("supervisor", "supervisor", stream=log)
        own_etcd = None if wanted.etcd_endpoints else LocalEtcd(directory.etcd_data)
        endpoints = own_etcd.endpoints if own_etcd is not None else wanted.etcd_endpoints
        memory = small_memory(os.environ) if wanted.model is None else {}
        specs = plan(_with_ports(wanted), model, endpoints, cores_here(), memory)
        children: dict[str, Child] = {} if own_etcd is None else {ETCD: own_etcd}
        for spec in specs:
            settings = settings_of(spec)
            if isinstance(settings, FrontendSettings):
                _require_ports(settings)
            children[spec.id] = ServiceProcess(
                f"services.{spec.service}",
                spec.settings,
                directory.logs / f"{spec.id}.log",
                settings.drain_seconds + STOP_SLACK_SECONDS,
            )
        supervisor = Supervisor(children, specs, endpoints, wanted.cluster, report)
        interrupted = _Interrupts(supervisor, report)
        try:
            await supervisor.start()
            front = supervisor.view.instances["frontend-0"]
            cluster = Cluster(
                specs,
                wanted.model_name or model.name,
                endpoints,
                front.address,
                front.http_address,
                str(directory.logs),
                wanted.decode + wanted.combined,
                time.monotonic() - begun,
            )
            directory.publish(LocalCluster(endpoints, wanted.cluster, cluster.grpc, cluster.http))
            await body(cluster)
        except CommandError:
            directory.keep()
            raise
        except asyncio.CancelledError:
            if not interrupted:
                raise
        finally:
            interrupted.stopping()
            await supervisor.stop()
        return not interrupted


def _with_ports(wanted: Wanted) -> Wanted:
    """Free ports are chosen here, so that a frontend that is started again keeps its own."""
    return replace(
        wanted,
        http_port=wanted.http_port or free_port(),
        grpc_port=wanted.grpc_port or free_port(),
    )


def _require_ports(settings: FrontendSettings) -> None:
    require_free(settings.http.host or HOST, settings.http.port, "--http-port", "BATON_HTTP_PORT")
    require_free(settings.grpc.host or HOST, settings.grpc.port, "--grpc-port", "BATON_GRPC_PORT")


class _Interrupts:
    """The first signal ends the body, so that the cluster drains; one during that kills."""

    def __init__(self, supervisor: Supervisor, report: Report) -> None:
        self._supervisor = supervisor
        self._report = report
        self._received = False
        self._task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._receive)

    def __bool__(self) -> bool:
        return self._received

    def stopping(self) -> None:
        """From now on a signal kills."""
        self._task = None

    def _receive(self) -> None:
        if self._task is None:
            self._supervisor.kill()
        elif not self._received:
            self._received = True
            with suppress(OSError):  # the terminal may be gone
                self._report.say("Stopping: running work may end. Ctrl-C again kills.")
            self._task.cancel()
