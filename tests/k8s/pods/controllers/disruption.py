"""Whether a pod may be evicted: PodDisruptionBudgets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.k8s.manifests.quantity import count_or_share
from tests.k8s.manifests.selectors import matches


@dataclass(frozen=True)
class Candidate:
    """A pod as budgets see it."""

    name: str
    labels: Mapping[str, str]
    ready: bool
    terminating: bool = False


def may_evict(
    pod: Candidate,
    pods: Sequence[Candidate],
    expected: Mapping[str, int],
    budgets: Sequence[Mapping[str, Any]],
) -> bool:
    """Return whether every budget of a pod lets it go now.

    Args:
        pod: that is to go.
        pods: of the namespace.
        expected: how many pods the owners of those that a budget selects want, by budget's name.
        budgets: PodDisruptionBudgets.
    """
    for budget in budgets:
        spec = budget["spec"]
        if not matches(spec["selector"], pod.labels):
            continue
        healthy = sum(
            one.ready and not one.terminating and matches(spec["selector"], one.labels)
            for one in pods
        )
        wanted = expected[budget["metadata"]["name"]]
        desired = _desired_healthy(spec, wanted)
        if not pod.ready:
            always = spec.get("unhealthyPodEvictionPolicy") == "AlwaysAllow"
            if always or healthy >= desired:
                continue
            return False
        if healthy - 1 < desired:
            return False
    return True


def _desired_healthy(spec: Mapping[str, Any], expected: int) -> int:
    if "maxUnavailable" in spec:
        return max(0, expected - count_or_share(spec["maxUnavailable"], expected, up=True))
    return count_or_share(spec["minAvailable"], expected, up=True)
