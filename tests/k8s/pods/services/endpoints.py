"""Which pods stand behind a Service, and since when others know."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tests.k8s.manifests.selectors import matches

T = TypeVar("T")


@dataclass(frozen=True)
class Backend:
    """A pod as Services see it."""

    name: str
    address: str
    labels: Mapping[str, str] = field(hash=False)
    ports: Mapping[str, int] = field(hash=False, default_factory=dict)
    """Its containers' ports that have names."""
    ready: bool = True
    terminating: bool = False
    hostname: str = ""
    subdomain: str = ""


def endpoints(service: Mapping[str, Any], pods: Sequence[Backend]) -> tuple[Backend, ...]:
    """Return the pods that a Service sends to, or, without an address, that its name stands for.

    They are ready and not being deleted. Where there is none, a Service with an address goes on
    with those that terminate and still say that they are ready, as kube-proxy does.
    """
    spec = service["spec"]
    mine = [pod for pod in pods if matches(_selector(spec), pod.labels)]
    if spec.get("publishNotReadyAddresses"):
        return tuple(mine)
    ready = [pod for pod in mine if pod.ready and not pod.terminating]
    if not ready and spec.get("clusterIP") != "None":
        ready = [pod for pod in mine if pod.ready]
    return tuple(ready)


def target(port: Mapping[str, Any], pod: Backend) -> int | None:
    """Return the number of a Service's port at a pod, or None: the pod has none of that name."""
    wanted = port.get("targetPort", port["port"])
    return wanted if isinstance(wanted, int) else pod.ports.get(wanted)


def _selector(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    return {"matchLabels": spec["selector"]} if spec.get("selector") else None


class Late(Generic[T]):
    """A value whose changes are known some time after they happen, in their order.

    Args:
        value: known from the beginning.
        seconds: how late changes are.
        apply: called with each value when it becomes known.
    """

    def __init__(self, value: T, seconds: float, apply: Callable[[T], None]) -> None:
        self.known = self._newest = value
        self.seconds = seconds
        self._apply = apply

    @property
    def settled(self) -> bool:
        """Whether all that happened is known."""
        return self.known == self._newest

    def change(self, value: T) -> None:
        """Have a value that others learn later; nothing, if it is the newest one already."""
        if value != self._newest:
            self._newest = value
            asyncio.get_running_loop().call_later(self.seconds, self._learn, value)

    def _learn(self, value: T) -> None:
        self.known = value
        self._apply(value)
