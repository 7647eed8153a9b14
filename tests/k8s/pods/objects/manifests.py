"""Rendered objects, by kind and name, of which pods are run."""

import base64
from collections.abc import Iterable, Iterator

from tests.k8s.manifests.render import Object
from tests.k8s.pods.objects.environment import Data
from tests.k8s.pods.objects.supported import UnsupportedError, check_pod

WORKLOADS = ("StatefulSet", "Deployment", "DaemonSet")
ACTED_ON = {*WORKLOADS, "ConfigMap", "PodDisruptionBudget", "Secret", "Service"}
WITHOUT_EFFECT = {
    "HorizontalPodAutoscaler",
    "Namespace",
    "NetworkPolicy",
    "PriorityClass",
    "ServiceAccount",
}


class Manifests:
    """The objects of one namespace.

    Args:
        objects: as they were rendered.

    Raises:
        UnsupportedError: a kind, or a field of a pod, is not known here.
    """

    def __init__(self, objects: Iterable[Object]) -> None:
        self._objects: dict[tuple[str, str], Object] = {}
        for one in objects:
            kind, name = one["kind"], one["metadata"]["name"]
            if kind not in ACTED_ON | WITHOUT_EFFECT:
                raise UnsupportedError(f"{kind} {name}: the kind is not known to the pods of tests")
            if kind in WORKLOADS:
                check_pod(one["spec"]["template"]["spec"], f"{kind} {name}")
            self._objects[kind, name] = one
        spaces = {one["metadata"].get("namespace") for one in self if one["kind"] in ACTED_ON}
        if len(spaces) > 1:
            raise UnsupportedError(f"more than one namespace: {spaces}")
        self.namespace: str = next(iter(spaces), None) or "default"

    def __iter__(self) -> Iterator[Object]:
        return iter(self._objects.values())

    def of(self, *kinds: str) -> list[Object]:
        """Return the objects of some kinds."""
        return [one for one in self if one["kind"] in kinds]

    def get(self, kind: str, name: str) -> Object:
        """Return an object.

        Raises:
            KeyError: there is none.
        """
        return self._objects[kind, name]

    def data(self) -> Data:
        """Return the contents of ConfigMaps and Secrets."""
        return Data(
            {one["metadata"]["name"]: one.get("data", {}) for one in self.of("ConfigMap")},
            {one["metadata"]["name"]: _decoded(one) for one in self.of("Secret")},
        )


def _decoded(secret: Object) -> dict[str, str]:
    held = {key: base64.b64decode(text).decode() for key, text in secret.get("data", {}).items()}
    return held | secret.get("stringData", {})
