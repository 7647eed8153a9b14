"""A cluster for a test: `async with Cluster(manifests, directory=…) as cluster`."""

import asyncio
import secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Self

from tests.k8s.manifests.selectors import matches
from tests.k8s.pods.containers.abandoned import ip, link_name, owner
from tests.k8s.pods.containers.podman import Podman
from tests.k8s.pods.controllers.disruption import may_evict
from tests.k8s.pods.controllers.nodes import Node, choose_node, devices_of, nodes_for
from tests.k8s.pods.controllers.workload import Workload
from tests.k8s.pods.kubelet.host import Host, free_networks
from tests.k8s.pods.kubelet.pod import Pod
from tests.k8s.pods.kubelet.views import backend, candidate, describe
from tests.k8s.pods.objects.environment import Data
from tests.k8s.pods.objects.manifests import WORKLOADS, Manifests
from tests.k8s.pods.services.table import ServiceTable

ENDPOINTS_LAG_SECONDS = 2.0
TICK_SECONDS = 0.25
"""How often controllers look, where nothing tells them: pods become available by time."""
RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"
FIRST_SERVICE = 20
"""Of the addresses of Services, the last byte of the first one."""


class Cluster:
    """Nodes, and the pods of manifests on them, until the block ends: then nothing is left.

    Args:
        manifests: what is applied.
        directory: for volumes and logs; exists.
        images: what is run in the place of an image that manifests name.
        nodes: their names, or what else the scheduler knows of them.
        lag: seconds after which changes of endpoints are known.
    """

    def __init__(
        self,
        manifests: Manifests,
        directory: Path,
        *,
        images: Mapping[str, str] = {},
        nodes: Sequence[str | Node] = ("node-a", "node-b", "node-c"),
        lag: float = ENDPOINTS_LAG_SECONDS,
    ) -> None:
        run = secrets.token_hex(3)
        routes = subprocess.run(["ip", "-4", "route"], check=True, capture_output=True, text=True)
        pod_net, service_net = free_networks([one.split()[0] for one in routes.stdout.splitlines()])
        podman = Podman(run, directory)
        self.host = Host(podman, run, directory, pod_net, service_net, images)
        self.host.namespace = manifests.namespace
        known = [Node(node) if isinstance(node, str) else node for node in nodes]
        self._nodes = {node.name: node for node in known}
        self.schedulable = dict.fromkeys(self._nodes, True)
        self.pods: list[Pod] = []
        """Those of which something is left."""
        self.history: list[Pod] = []
        """All that there were."""
        self.workloads: dict[str, Workload] = {}
        self._running: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._stack = AsyncExitStack()
        addresses = {}
        for number, one in enumerate(manifests.of("Service"), FIRST_SERVICE):
            one["spec"].setdefault("clusterIP", str(service_net[number]))
            addresses[one["metadata"]["name"]] = one["spec"]["clusterIP"]
        self.services = ServiceTable(manifests.of("Service"), manifests.namespace, lag)
        self.apply(manifests)

    async def __aenter__(self) -> Self:
        host = self.host
        try:
            self._stack.push_async_callback(host.podman.clean)
            link = link_name(host.run)
            await ip("link", "add", link, "type", "bridge")
            self._stack.push_async_callback(ip, "link", "del", link)
            used = {one.address for one in self.services.services.values()} - {"None"}
            for address in (host.dns, *sorted(used)):
                await ip("address", "add", f"{address}/32", "dev", link)
            await ip("link", "set", link, "up")
            network = ("--disable-dns", "--subnet", str(host.pods), *owner(host.podman))
            await host.podman("network", "create", *network, host.network)
            self._stack.push_async_callback(self.services.close)
            await self.services.start(host.dns)
            self._stack.callback(host.close)
            self._tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
            controlling = self._tasks.create_task(self._control())
            self._stack.callback(controlling.cancel)
            self._stack.push_async_callback(self._remove_pods)
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._stack.__aexit__(*error)

    def apply(self, manifests: Manifests) -> None:
        """Want what manifests say: workloads that change roll, volumes of pods get new texts.

        Services stay what they were.
        """
        self.apply_data(manifests.data())
        services = manifests.of("Service")
        self.host.linked = [one for one in services if one["spec"].get("clusterIP") != "None"]
        self._budgets = manifests.of("PodDisruptionBudget")
        for manifest in manifests.of(*WORKLOADS):
            workload = Workload(manifest, tuple(self.schedulable))
            if workload.key in self.workloads:
                self.workloads[workload.key].replace(manifest)
            else:
                self.workloads[workload.key] = workload
        self._changed.set()

    def apply_data(self, data: Data) -> None:
        """Have other ConfigMaps and Secrets, also in the volumes of pods that run."""
        self.host.data = data
        for pod in self.pods:
            pod.refresh()

    def of(self, name: str) -> list[Pod]:
        """Return the pods of a workload, named as `deployment/router`."""
        return [pod for pod in self.pods if pod.identity.owner == name]

    def restart(self, name: str) -> None:
        """Replace all pods of a workload, as `kubectl rollout restart` does."""
        template = self.workloads[name].spec["template"]
        annotations = template.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[RESTARTED_AT] = str(time.time())
        self._changed.set()

    def scale(self, name: str, replicas: int) -> None:
        """Want more pods of a workload, or fewer."""
        self.workloads[name].spec["replicas"] = replicas
        self._changed.set()

    async def wait_rolled_out(self, *names: str, seconds: float) -> float:
        """Return the seconds until workloads, or all of them, have just the pods that they want.

        Raises:
            TimeoutError: they had not in time; the text has the events of pods that are not ready.
        """
        began = time.monotonic()
        wanted = [self.workloads[name] for name in names or self.workloads]
        try:
            async with asyncio.timeout(seconds):
                while not all(one.rolled_out(self.of(one.key)) for one in wanted):
                    await asyncio.sleep(TICK_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"not rolled out in {seconds:g} s:\n{describe(self.pods)}") from None
        return time.monotonic() - began

    async def wait_endpoints(self) -> None:
        """Wait until all Services know what became of their pods."""
        while not all(one.endpoints.settled for one in self.services.services.values()):
            await asyncio.sleep(TICK_SECONDS)

    async def drain(self, node: str, *, seconds: float) -> float:
        """Evict the pods of a node, which takes no others, and return the seconds until they left.

        Each is evicted when its disruption budgets let it go, and those of DaemonSets stay, as with
        `kubectl drain --ignore-daemonsets`.

        Raises:
            TimeoutError: they did not let all go in time.
        """
        began = time.monotonic()
        self.schedulable[node] = False
        async with asyncio.timeout(seconds):
            while there := [pod for pod in self.pods if self._evicted(pod, node)]:
                for pod in there:
                    if not pod.terminating and self.may_evict(pod):
                        pod.delete()
                await asyncio.sleep(TICK_SECONDS)
        return time.monotonic() - began

    def uncordon(self, node: str) -> None:
        """Let a node take pods again."""
        self.schedulable[node] = True
        self._changed.set()

    def may_evict(self, pod: Pod) -> bool:
        """Return whether every disruption budget lets a pod go now."""
        expected = {}
        for budget in self._budgets:
            selector = budget["spec"]["selector"]
            owners = [one for one in self.workloads.values() if matches(selector, one.labels())]
            expected[budget["metadata"]["name"]] = sum(one.wanted for one in owners)
        return may_evict(candidate(pod), list(map(candidate, self.pods)), expected, self._budgets)

    def address(self, service: str, port: int) -> str:
        """Return `host:port` of a Service."""
        return f"{self.services.services[service].address}:{port}"

    async def execute(
        self, pod: Pod, container: str, *command: str, seconds: float = 60.0
    ) -> tuple[int, str]:
        """Run a command in a container of a pod; return exit code and output.

        Raises:
            RuntimeError: the container does not run.
            TimeoutError: it took too long.
        """
        running = pod.runners[container].container
        if running is None:
            raise RuntimeError(f"{pod.name}: container {container} does not run")
        return await running.execute(list(command), seconds)

    async def _control(self) -> None:
        while True:
            self._changed.clear()
            self._reconcile()
            try:
                async with asyncio.timeout(TICK_SECONDS):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _reconcile(self) -> None:
        self.pods = [pod for pod in self.pods if pod.phase != "Gone"]
        for workload in self.workloads.values():
            plan = workload.plan(self.of(workload.key))
            for pod in self.of(workload.key):
                if pod.name in plan.delete:
                    pod.delete()
            for number in range(plan.create):
                ordinal = plan.ordinals[number] if plan.ordinals else None
                node = self._choose_node(workload)
                if node is None:
                    break  # no node takes it: it waits
                self._create(workload, node, ordinal)
            for node in plan.nodes:
                self._create(workload, node)
        self.services.update([backend(pod) for pod in self.pods])

    def _evicted(self, pod: Pod, node: str) -> bool:
        of_every_node = self.workloads[pod.identity.owner].kind == "DaemonSet"
        return pod.identity.node == node and not of_every_node

    def _choose_node(self, workload: Workload) -> str | None:
        spec = workload.spec["template"]["spec"]
        held = [(pod.identity.node, devices_of(pod.identity.spec)) for pod in self.pods]
        taking = [self._nodes[node] for node, takes in self.schedulable.items() if takes]
        nodes = nodes_for(spec, taking, held)
        placed = [(pod.identity.node, pod.identity.labels) for pod in self.pods]
        return choose_node(spec, workload.labels(), nodes, placed)

    def _create(self, workload: Workload, node: str, ordinal: int | None = None) -> None:
        pod = Pod(workload.new_pod(node, ordinal), self.host, self._changed.set)
        self.pods.append(pod)
        self.history.append(pod)
        self._running.append(self._tasks.create_task(pod.run()))

    async def _remove_pods(self) -> None:
        self.workloads.clear()  # which makes no more pods
        for pod in self.pods:
            pod.delete(grace=0)
        if self._running:
            await asyncio.wait(self._running)
