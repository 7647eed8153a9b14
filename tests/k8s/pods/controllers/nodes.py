"""On which node a pod runs: one with its labels and free devices, and any number of pods."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.k8s.manifests.selectors import matches

HOST = "kubernetes.io/hostname"
Placed = Sequence[tuple[str, Mapping[str, str]]]
"""Pods that there are: node and labels of each."""


@dataclass(frozen=True)
class Node:
    """A node as the scheduler sees it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    devices: Mapping[str, int] = field(default_factory=dict)
    """How many it has of each extended resource."""


def devices_of(spec: Mapping[str, Any]) -> dict[str, int]:
    """Return how many a pod wants of each extended resource: names with a slash."""
    wanted: dict[str, int] = {}
    for container in spec["containers"]:
        for name, count in container.get("resources", {}).get("limits", {}).items():
            if "/" in name:
                wanted[name] = wanted.get(name, 0) + int(count)
    return wanted


def nodes_for(
    spec: Mapping[str, Any], nodes: Collection[Node], held: Sequence[tuple[str, Mapping[str, int]]]
) -> list[str]:
    """Return the nodes that a pod's selector chooses and that have the devices that it wants.

    Args:
        spec: of the pod.
        nodes: that take pods.
        held: node and devices of each pod that there is. One that terminates has them to its end.
    """
    selector = {"matchLabels": spec.get("nodeSelector", {})}
    found = []
    for node in nodes:
        free = dict(node.devices)
        for where, devices in held:
            for name, count in devices.items() if where == node.name else ():
                free[name] -= count
        enough = all(free.get(name, 0) >= count for name, count in devices_of(spec).items())
        if enough and matches(selector, node.labels):
            found.append(node.name)
    return found


def choose_node(
    spec: Mapping[str, Any], labels: Mapping[str, str], nodes: Collection[str], placed: Placed
) -> str | None:
    """Return the node of a new pod, or None: there is none that it may run on.

    Required anti-affinity by host rules nodes out, and so do spreads that say `DoNotSchedule`. Of
    the others it is the one with the fewest pods of the same labels, then with the fewest.

    Args:
        spec: of the pod.
        labels: of the pod.
        nodes: that take pods.
        placed: the pods of all nodes.
    """
    allowed = [node for node in nodes if not _kept_away(spec, node, placed)]
    for spread in spec.get("topologySpreadConstraints", ()):
        if spread["topologyKey"] == HOST and spread["whenUnsatisfiable"] == "DoNotSchedule":
            selector = _selector(spread, labels)
            counts = {node: _count(selector, node, placed) for node in nodes}
            most = min(counts.values(), default=0) + spread["maxSkew"]
            allowed = [node for node in allowed if counts[node] < most]
    return min(allowed, key=lambda node: _load(node, labels, placed), default=None)


def _selector(spread: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    own = {key: labels[key] for key in spread.get("matchLabelKeys", ()) if key in labels}
    selector = spread["labelSelector"]
    return {**selector, "matchLabels": {**selector.get("matchLabels", {}), **own}}


def _kept_away(spec: Mapping[str, Any], node: str, placed: Placed) -> bool:
    away = spec.get("affinity", {}).get("podAntiAffinity", {})
    return any(
        rule["topologyKey"] == HOST and _count(rule["labelSelector"], node, placed)
        for rule in away.get("requiredDuringSchedulingIgnoredDuringExecution", ())
    )


def _count(selector: Mapping[str, Any], node: str, placed: Placed) -> int:
    return sum(where == node and matches(selector, labels) for where, labels in placed)


def _load(node: str, labels: Mapping[str, str], placed: Placed) -> tuple[int, int, str]:
    there = [other for where, other in placed if where == node]
    return sum(dict(other) == dict(labels) for other in there), len(there), node
