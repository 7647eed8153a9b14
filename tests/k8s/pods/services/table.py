"""All Services of a run: their addresses, their names, and what is behind them."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from tests.k8s.pods.objects.supported import UnsupportedError
from tests.k8s.pods.services.dns import PORT, DnsServer
from tests.k8s.pods.services.endpoints import Backend, Late, endpoints, target
from tests.k8s.pods.services.proxy import ServicePort

DOMAIN = "svc.cluster.local"


class Service:
    """A Service and what others know of its endpoints.

    Args:
        manifest: with `clusterIP`, or `None` there.
        lag: seconds after which a change of endpoints is known.
    """

    def __init__(self, manifest: Mapping[str, Any], lag: float) -> None:
        self.manifest = manifest
        self.name: str = manifest["metadata"]["name"]
        self.address: str = manifest["spec"]["clusterIP"]
        self.ports: dict[int, ServicePort] = {}
        self.endpoints: Late[tuple[Backend, ...]] = Late((), lag, self._apply)
        if manifest["spec"].get("sessionAffinity", "None") != "None":
            raise UnsupportedError(f"Service {self.name}: sessionAffinity is not done")

    async def start(self) -> None:
        """Listen on its ports, where it has an address."""
        if self.address == "None":
            return
        for port in self.manifest["spec"]["ports"]:
            self.ports[port["port"]] = ServicePort(self.address, port["port"])
            await self.ports[port["port"]].start()

    def close(self) -> None:
        """Listen no longer."""
        for port in self.ports.values():
            port.close()

    def addresses(self) -> list[str]:
        """Return what its name stands for."""
        if self.address != "None":
            return [self.address]
        return [pod.address for pod in self.endpoints.known]

    def _apply(self, pods: Sequence[Backend]) -> None:
        for port in self.manifest["spec"]["ports"]:
            if (listening := self.ports.get(port["port"])) is not None:
                found = [(pod.address, target(port, pod)) for pod in pods]
                listening.targets = [(host, number) for host, number in found if number]


class ServiceTable:
    """The Services, and the DNS that names them.

    Args:
        manifests: of the Services, each with a `clusterIP`.
        namespace: of all of them.
        lag: seconds after which changes of endpoints are known.
    """

    def __init__(self, manifests: Sequence[Mapping[str, Any]], namespace: str, lag: float) -> None:
        self.services = {one["metadata"]["name"]: Service(one, lag) for one in manifests}
        self._namespace = namespace
        self._stack = AsyncExitStack()

    async def start(self, dns_address: str) -> None:
        """Listen on all addresses."""
        loop = asyncio.get_running_loop()
        server = partial(DnsServer, self.resolve)
        transport, _ = await loop.create_datagram_endpoint(server, (dns_address, PORT))
        self._stack.callback(transport.close)
        for service in self.services.values():
            self._stack.callback(service.close)
            await service.start()

    async def close(self) -> None:
        """Listen no longer."""
        await self._stack.aclose()

    def update(self, pods: Sequence[Backend]) -> None:
        """Take the pods as they are now."""
        for service in self.services.values():
            service.endpoints.change(endpoints(service.manifest, pods))

    def resolve(self, name: str) -> list[str] | None:
        """Return the addresses of a name within the cluster; None: there is no such name."""
        suffix = f".{self._namespace}.{DOMAIN}"
        if not name.endswith(suffix):
            return None
        host, _, service_name = name.removesuffix(suffix).rpartition(".")
        service = self.services.get(service_name)
        if service is None:
            return None
        if not host:
            return service.addresses()
        if service.address != "None":
            return None
        found = [
            pod.address
            for pod in service.endpoints.known
            if pod.subdomain == service_name and pod.hostname == host
        ]
        return found or None
