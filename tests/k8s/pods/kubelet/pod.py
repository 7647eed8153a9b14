"""One pod: its address, its volumes, and the order in which its containers start and end."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.k8s.pods.containers.arguments import run_arguments
from tests.k8s.pods.containers.podman import PodmanError
from tests.k8s.pods.containers.volumes import Volumes
from tests.k8s.pods.kubelet.host import Host
from tests.k8s.pods.kubelet.runner import Place, Runner
from tests.k8s.pods.objects.environment import ConfigError, PodFacts, environment

DEFAULT_GRACE_SECONDS = 30
AGAIN_SECONDS = 1.0
CLUSTER_DOMAIN = "cluster.local"


@dataclass(frozen=True)
class PodIdentity:
    """What a pod is, before it runs."""

    name: str
    uid: str
    owner: str
    """Kind and name of its controller."""
    revision: str
    node: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]


class Pod:
    """A pod from its creation until nothing of it is left.

    Args:
        identity: what it is.
        host: where it runs.
        changed: called whenever its readiness or its phase changes.
    """

    def __init__(self, identity: PodIdentity, host: Host, changed: Callable[[], None]) -> None:
        self.identity = identity
        self.name = identity.name
        self.address = host.next_address()
        self.phase = "Pending"
        """Then Running, and Gone."""
        self.ready = False
        self.ready_since = 0.0
        self.events: list[str] = []
        self._host = host
        self._changed = changed
        self._began = time.monotonic()
        self._delete = asyncio.Event()
        self._grace = identity.spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
        self.sandbox = f"{host.network}-{self.name}-{identity.uid}"
        self.directory = host.directory / "pods" / f"{self.name}-{identity.uid}"
        self._facts = PodFacts(
            identity.name,
            host.namespace,
            identity.uid,
            self.address,
            identity.node,
            host.gateway,
            identity.labels,
            identity.annotations,
            identity.spec.get("serviceAccountName", "default"),
        )
        self.logs = host.directory / "logs" / f"{self.name}-{identity.uid}"
        self.logs.mkdir(parents=True)
        place = Place(
            host.podman,
            self.sandbox,
            self.address,
            self.logs,
            self._grace,
            self._arguments,
            self.note,
            self._on_change,
        )
        spec = identity.spec
        self._inits = [Runner(one, place) for one in spec.get("initContainers", ())]
        self._mains = [Runner(one, place) for one in spec["containers"]]
        claims = host.directory / "claims"
        node = partial(host.node, identity.node)
        self._volumes = Volumes(spec, self.directory, claims, node, host.data, self._facts)

    @property
    def terminating(self) -> bool:
        """Whether it was deleted."""
        return self._delete.is_set()

    @property
    def runners(self) -> dict[str, Runner]:
        """Its containers by name."""
        return {runner.name: runner for runner in (*self._inits, *self._mains)}

    def available(self, seconds: float) -> bool:
        """Return whether it has been ready for so long."""
        return self.ready and time.monotonic() - self.ready_since >= seconds

    def delete(self, grace: float | None = None) -> None:
        """Let it end, within its own grace period or another; again: nothing happens.

        Without any grace all its containers are killed at once.
        """
        if not self.terminating:
            if grace is not None:
                self._grace = grace
            self.note("deleted")
            self._delete.set()
            self._changed()

    def refresh(self) -> None:
        """Take ConfigMaps and Secrets as they are now, which Kubernetes does within a minute."""
        self._volumes.refresh(self._host.data)

    def note(self, event: str) -> None:
        """Keep an event, with the pod's age."""
        self.events.append(f"{time.monotonic() - self._began:.1f} s: {event}")

    async def run(self) -> None:
        """Start, run, and end when the pod is deleted."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._live()
        finally:
            await self._host.podman("pod", "rm", "-f", "-i", "-t", "0", self.sandbox)
            self._volumes.remove()
            self.phase, self.ready = "Gone", False
            self.note("gone")
            self._changed()

    async def _live(self) -> None:
        while not await self._set_up():
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS):
                    await self._delete.wait()
                return
        starting = self._tasks.create_task(self._start())
        await self._delete.wait()
        # Runners are tasks of their own: what podman is just starting is found and ended below.
        starting.cancel()
        await asyncio.wait([starting])
        await self._stop_containers()

    async def _start(self) -> None:
        for runner in self._inits:
            if _is_sidecar(runner):
                self._tasks.create_task(runner.run())
                await runner.started.wait()
            else:
                await asyncio.wait([self._tasks.create_task(runner.run(once=True))])
        for runner in self._mains:
            self._tasks.create_task(runner.run())
        self.phase = "Running"
        self._on_change()

    async def _set_up(self) -> bool:
        """Make volumes and the network namespace; return whether that worked."""
        spec = self.identity.spec
        try:
            self._volumes.make()
        except ConfigError as error:
            self.note(f"volumes: {error}")
            self._volumes.remove()
            return False
        search = [f"{self._host.namespace}.svc.{CLUSTER_DOMAIN}"]
        search += [f"svc.{CLUSTER_DOMAIN}", CLUSTER_DOMAIN]
        podman = self._host.podman
        try:
            await podman(
                *("pod", "create", "--name", self.sandbox, "--label", podman.label, "--no-hosts"),
                *("--network", self._host.network, "--ip", self.address),
                *("--hostname", spec.get("hostname", self.name), "--dns", self._host.dns),
                *(f"--dns-search={one}" for one in search),
                *("--dns-option", "ndots:5", "--share", "ipc,net,uts"),
            )
            await podman("pod", "start", self.sandbox)
        except PodmanError as error:
            self.note(f"sandbox: {error}")
            await podman("pod", "rm", "-f", "-i", "-t", "0", self.sandbox)
            self._volumes.remove()
            return False
        return True

    async def _stop_containers(self) -> None:
        """End the main containers together, then sidecars, the last one first."""
        if self._grace == 0:
            await asyncio.gather(*(one.kill() for one in self.runners.values()))
            return
        deadline = asyncio.get_running_loop().time() + self._grace
        sidecars = [one for one in self._inits if _is_sidecar(one)]
        others = [one for one in self.runners.values() if one not in sidecars]
        stops = [asyncio.create_task(one.stop(deadline)) for one in others]
        for sidecar in reversed(sidecars):
            before = asyncio.gather(*stops)
            stops = [asyncio.create_task(sidecar.stop(deadline, before))]
        await asyncio.gather(*stops)

    async def _arguments(self, container: Mapping[str, Any]) -> list[str]:
        linked = self.identity.spec.get("enableServiceLinks", True)
        links = self._host.service_variables() if linked else {}
        variables = environment(container, self._facts, self._host.data, links)
        image, user = await self._host.image(container["image"])
        return run_arguments(
            container,
            self.identity.spec.get("securityContext", {}),
            image=image,
            image_user=user,
            environment=variables,
            mounts=self._volumes.mounts(container),
        )

    def _on_change(self) -> None:
        sidecars = [one for one in self._inits if _is_sidecar(one)]
        ready = self.phase == "Running" and all(one.ready for one in (*sidecars, *self._mains))
        if ready and not self.ready:
            self.ready_since = time.monotonic()
            self.note("ready")
        self.ready = ready
        self._changed()


def _is_sidecar(runner: Runner) -> bool:
    return runner.spec.get("restartPolicy") == "Always"
