"""On which node a pod runs: nodes are names, and hold any number of pods."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tests.k8s.manifests.selectors import matches

HOST = "kubernetes.io/hostname"
Placed = Sequence[tuple[str, Mapping[str, str]]]
"""Pods that there are: node and labels of each."""


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
