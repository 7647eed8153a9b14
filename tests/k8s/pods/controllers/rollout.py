"""What a Deployment, a StatefulSet and a DaemonSet do next, given the pods that there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.k8s.manifests.quantity import count_or_share


@dataclass(frozen=True)
class PodView:
    """A pod as its controller sees it."""

    name: str
    revision: str
    ready: bool = True
    available: bool = True
    """Ready for `minReadySeconds`."""
    terminating: bool = False
    node: str = ""


@dataclass(frozen=True)
class Plan:
    """What is to be done now."""

    create: int = 0
    """Pods of the current revision; `ordinals` says which of a StatefulSet."""
    delete: tuple[str, ...] = ()
    ordinals: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    """Where a DaemonSet lacks a pod."""


@dataclass(frozen=True)
class Strategy:
    """How a Deployment replaces its pods."""

    surge: int
    unavailable: int
    recreate: bool = False

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> "Strategy":
        """Return the strategy of a Deployment's spec, with Kubernetes' defaults.

        Raises:
            ValueError: it lets the Deployment do nothing.
        """
        strategy, replicas = spec.get("strategy", {}), spec.get("replicas", 1)
        if strategy.get("type") == "Recreate":
            return cls(0, 0, recreate=True)
        rolling = strategy.get("rollingUpdate", {})
        surge = count_or_share(rolling.get("maxSurge", "25%"), replicas, up=True)
        unavailable = count_or_share(rolling.get("maxUnavailable", "25%"), replicas, up=False)
        if rolling.get("maxSurge") == 0 and rolling.get("maxUnavailable") == 0:
            raise ValueError("maxSurge and maxUnavailable are both 0")
        return cls(surge, unavailable if surge else max(1, unavailable))


def plan_deployment(
    replicas: int, revision: str, strategy: Strategy, pods: Sequence[PodView]
) -> Plan:
    """Return what a Deployment does next.

    Pods that terminate count as gone, as in Kubernetes: their successors do not wait for them,
    unless the strategy is to recreate.
    """
    alive = [pod for pod in pods if not pod.terminating]
    new = [pod for pod in alive if pod.revision == revision]
    old = [pod for pod in alive if pod.revision != revision]
    extra = _least_worth(new)[: max(0, len(new) - replicas)]
    if strategy.recreate and old:
        return Plan(delete=_names(old))
    if strategy.recreate:
        missing = 0 if len(alive) != len(pods) else max(0, replicas - len(new))
        return Plan(create=missing, delete=_names(extra))
    room = replicas + (strategy.surge if old else 0) - len(alive)
    create = max(0, min(replicas - len(new), room))
    return Plan(create=create, delete=_names([*extra, *_old_to_go(replicas, strategy, new, old)]))


def plan_stateful_set(
    spec: Mapping[str, Any], name: str, revision: str, pods: Sequence[PodView]
) -> Plan:
    """Return what a StatefulSet does next: one change at a time, unless it may be parallel."""
    replicas = spec.get("replicas", 1)
    parallel = spec.get("podManagementPolicy") == "Parallel"
    by_ordinal = {int(pod.name.removeprefix(f"{name}-")): pod for pod in pods}
    missing = [ordinal for ordinal in range(replicas) if ordinal not in by_ordinal]
    beyond = [
        by_ordinal[ordinal].name
        for ordinal in sorted(by_ordinal, reverse=True)
        if ordinal >= replicas and not by_ordinal[ordinal].terminating
    ]
    settled = all(pod.available and not pod.terminating for pod in pods)
    if parallel and (missing or beyond):
        return Plan(len(missing), tuple(beyond), tuple(missing))
    if missing:
        before = [by_ordinal[ordinal] for ordinal in range(missing[0])]
        if all(pod.available and not pod.terminating for pod in before):
            return Plan(1, (), (missing[0],))
        return Plan()
    if beyond:
        return Plan(delete=(beyond[0],) if settled else ())
    update = spec.get("updateStrategy", {})
    if update.get("type") == "OnDelete":
        return Plan()
    partition = update.get("rollingUpdate", {}).get("partition", 0)
    for ordinal in reversed(range(partition, replicas)):
        pod = by_ordinal[ordinal]
        if pod.revision != revision and not pod.terminating:
            # One that is broken may go while nothing else does.
            others = [one for one in pods if one is not pod]
            quiet = all(one.available and not one.terminating for one in others)
            return Plan(delete=(pod.name,) if quiet else ())
        if not pod.available:
            return Plan()
    return Plan()


def plan_daemon_set(
    spec: Mapping[str, Any], revision: str, nodes: Sequence[str], pods: Sequence[PodView]
) -> Plan:
    """Return what a DaemonSet does next: a pod on each node, the next one when the last is gone.

    Raises:
        ValueError: it surges, which is not done here.
    """
    update = spec.get("updateStrategy", {})
    rolling = update.get("rollingUpdate", {})
    if rolling.get("maxSurge", 0) not in (0, "0%"):
        raise ValueError("maxSurge of a DaemonSet is not done")
    missing = tuple(node for node in nodes if node not in {pod.node for pod in pods})
    if update.get("type") == "OnDelete":
        return Plan(nodes=missing)
    most = max(1, count_or_share(rolling.get("maxUnavailable", 1), len(nodes), up=True))
    old = [pod for pod in pods if pod.revision != revision and not pod.terminating]
    away = sum(pod.terminating or not pod.available for pod in pods) + len(missing)
    broken = [pod for pod in old if not pod.available]
    whole = [pod for pod in old if pod.available]
    return Plan(delete=_names([*broken, *whole[: max(0, most - away)]]), nodes=missing)


def _old_to_go(
    replicas: int, strategy: Strategy, new: Sequence[PodView], old: Sequence[PodView]
) -> list[PodView]:
    least = replicas - strategy.unavailable
    waiting = sum(not pod.available for pod in new)
    may_go = len(new) + len(old) - least - waiting
    if may_go <= 0:
        return []
    broken = [pod for pod in old if not pod.available][:may_go]
    available = sum(pod.available for pod in (*new, *old))
    whole = [pod for pod in old if pod.available]
    return [*broken, *whole[: max(0, available - least)]]


def _least_worth(pods: Sequence[PodView]) -> list[PodView]:
    return sorted(pods, key=lambda pod: (pod.ready, pod.available))


def _names(pods: Sequence[PodView]) -> tuple[str, ...]:
    return tuple(pod.name for pod in pods)
