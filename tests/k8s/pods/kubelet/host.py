"""What all pods of a run share: podman, a network, directories, and what they refer to."""

import ipaddress
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.k8s.pods.containers.memory import mount_memory, unmount
from tests.k8s.pods.containers.podman import Podman
from tests.k8s.pods.objects.environment import Data, service_variables

POD_PREFIX, SERVICE_PREFIX = 20, 24
FIRST_NET, LAST_NET = 64, 250
"""Of 10.0.0.0/8: the second byte of an address."""


@dataclass
class Host:
    """The one machine on which all nodes are."""

    podman: Podman
    run: str
    directory: Path
    pods: ipaddress.IPv4Network
    services: ipaddress.IPv4Network
    images: Mapping[str, str]
    """What is run in the place of an image, by the name that manifests give it."""
    namespace: str = "default"
    data: Data = field(default_factory=Data)
    linked: Sequence[Mapping[str, Any]] = ()
    """Services with addresses, for their variables."""
    _users: dict[str, str] = field(default_factory=dict)
    _nodes: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        addresses = self.pods.hosts()
        self.gateway = str(next(addresses))
        self._addresses: Iterator[ipaddress.IPv4Address] = addresses

    @property
    def network(self) -> str:
        """The name of podman's network."""
        return f"baton-test-{self.run}"

    @property
    def dns(self) -> str:
        """The address of the cluster's DNS."""
        return str(self.services[10])

    def next_address(self) -> str:
        """Return an address that no pod had."""
        return str(next(self._addresses))

    def service_variables(self) -> dict[str, str]:
        """Return the variables of Services, and those of the API server that is not there."""
        api = {"clusterIP": str(self.services[1]), "ports": [{"name": "https", "port": 443}]}
        return service_variables([{"metadata": {"name": "kubernetes"}, "spec": api}, *self.linked])

    def node(self, name: str) -> Path:
        """Return the root directory of a node, in which there is a /dev/shm and nothing else."""
        if name not in self._nodes:
            root = self.directory / "nodes" / name
            shared = root / "dev" / "shm"
            shared.mkdir(parents=True)
            mount_memory(shared, "mode=1777")
            self._nodes[name] = root
        return self._nodes[name]

    def close(self) -> None:
        """Let go of the nodes' memory."""
        while self._nodes:
            _, root = self._nodes.popitem()
            unmount(root / "dev" / "shm")

    async def image(self, name: str) -> tuple[str, str]:
        """Return the image that is run for a name, and its user.

        Raises:
            PodmanError: it is not on this machine.
        """
        image = self.images.get(name, name)
        if image not in self._users:
            inspect = ("image", "inspect", "--format", "{{.Config.User}}", image)
            self._users[image] = await self.podman(*inspect)
        return image, self._users[image]


def free_networks(used: Sequence[str]) -> tuple[ipaddress.IPv4Network, ipaddress.IPv4Network]:
    """Return networks for pods and for Services that overlap nothing.

    Args:
        used: networks that this machine routes to, as `ip route` prints them.

    Raises:
        RuntimeError: all are taken.
    """
    taken = [ipaddress.ip_network(one, strict=False) for one in used if "/" in one]
    candidates = list(range(FIRST_NET, LAST_NET))
    secrets.SystemRandom().shuffle(candidates)
    for number in candidates:
        whole = ipaddress.ip_network(f"10.{number}.0.0/16")
        if not any(whole.overlaps(other) for other in taken):
            pods = ipaddress.IPv4Network(f"10.{number}.0.0/{POD_PREFIX}")
            return pods, ipaddress.IPv4Network(f"10.{number}.255.0/{SERVICE_PREFIX}")
    raise RuntimeError("no network of 10.0.0.0/8 is free")
