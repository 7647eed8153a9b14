"""Services in processes of their own, for tests of processes."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.internal.v1.cluster_pb2 import Instance
from baton.process.parent import PARENT_ENV
from bench.harness.metrics import parse_metrics
from tests.support.clock import within
from tests.support.processes.launcher import Launched, Launcher

READY_SECONDS = 120.0
"""A limit for busy machines: a rank of vLLM needs ten seconds of CPU for imports."""
STOP_SECONDS = 15.0
LOG_TAIL_LINES = 40


@dataclass
class ServiceProcess:
    """A process of Baton under test."""

    name: str
    instance_id: str
    log_path: Path
    popen: Launched
    instance: Instance
    """Its registered record; empty before."""

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def address(self) -> str:
        """The address of its gRPC server."""
        return self.instance.address

    @property
    def running(self) -> bool:
        return self.popen.poll() is None

    def signal(self, number: signal.Signals) -> None:
        """Send SIGSTOP to freeze it, SIGCONT to thaw it, SIGTERM to drain it."""
        self.popen.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        self.popen.kill()
        self.popen.wait()

    async def metrics(self) -> dict[str, float]:
        """Return its metrics at /metrics, by name with labels."""
        async with httpx.AsyncClient() as http:
            answer = await http.get(f"http://{self.instance.metrics_address}/metrics")
        return parse_metrics(answer.text)

    async def stop(self) -> int:
        """Drain it and wait; return its exit code."""
        self.popen.send_signal(signal.SIGCONT)
        self.popen.terminate()
        return await self.wait(STOP_SECONDS)

    async def wait(self, timeout: float) -> int:
        """Wait until it has ended by itself; return its exit code."""
        async with within(timeout):
            return await self.popen.ended()

    def log_tail(self, lines: int = LOG_TAIL_LINES) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class ServiceSpawner:
    """Starts processes; `await spawn(...)` returns once the process is registered."""

    def __init__(self, launcher: Launcher, client: Etcd, cluster: str, directory: Path) -> None:
        self._launcher = launcher
        self._client = client
        self._cluster = cluster
        self._directory = directory
        self.services: list[ServiceProcess] = []

    async def __call__(
        self,
        name: str,
        env: Mapping[str, str] | None = None,
        instance_id: str = "",
        wait: bool = True,
        arguments: Sequence[str] = (),
    ) -> ServiceProcess:
        """Start `baton serve <name>`, or `python <arguments>` if arguments are given.

        Args:
            name: frontend, router, prefill, decode or kvstore.
            env: settings beyond those that join the test's cluster, for example BATON_ENGINE_KIND.
            instance_id: the id of an earlier service to replace; empty: a new one.
            wait: return only once its record is in etcd.
            arguments: arguments of the interpreter, for a process that is no service.
        """
        number = len(self.services)
        identity = instance_id or f"{name}-{number}"
        log_path = self._directory / f"{number}-{identity}.log"
        settings = {
            **{k: v for k, v in os.environ.items() if not k.startswith("BATON_")},
            "OMP_NUM_THREADS": "1",
            PARENT_ENV: str(os.getpid()),
            "BATON_INSTANCE_ID": identity,
            "BATON_GRPC_PORT": "0",
            "BATON_HTTP_PORT": "0",
            "BATON_ETCD_ENDPOINTS": ",".join(self._client.endpoints),
            "BATON_ETCD_CLUSTER": self._cluster,
            **(env or {}),
        }
        with log_path.open("wb") as log:
            popen = self._launcher.launch(
                arguments or ["-m", "baton", "serve", name], settings, stdout=log, stderr=log
            )
        service = ServiceProcess(name, identity, log_path, popen, Instance())
        self.services.append(service)
        if wait:
            await self._wait_registered(service)
        return service

    async def _wait_registered(self, service: ServiceProcess) -> None:
        # An earlier process of the same id may have left its record: wait for another incarnation.
        earlier = {each.instance.incarnation for each in self.services}
        key = keys.instance(self._cluster, service.instance_id)
        async with within(READY_SECONDS):
            while True:
                assert service.running, f"{service.name} ended:\n{service.log_tail()}"
                with suppress(EtcdError):  # on a machine that stalls
                    record = await self._client.get(key)
                    instance = keys.decode(Instance, record) if record else Instance()
                    if record and instance.incarnation not in earlier:
                        service.instance = instance
                        return
                await asyncio.sleep(0.02)

    async def close(self, *, show_logs: bool = False) -> None:
        """End all of them; one that does not end in time is killed and reported."""
        for service in reversed(self.services):
            if service.running:
                service.signal(signal.SIGCONT)
                service.popen.terminate()
        for service in self.services:
            try:
                await service.wait(STOP_SECONDS)
            except TimeoutError:
                service.kill()
                sys.stdout.write(f"{service.instance_id} did not stop and was killed\n")
            if show_logs:
                sys.stdout.write(f"--- {service.instance_id} ---\n{service.log_tail()}\n")
