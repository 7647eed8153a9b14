"""Rendered objects as rules look at them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from baton.settings import SERVICE_SETTINGS
from tests.k8s.manifests.render import Object
from tests.k8s.manifests.selectors import matches

JOBS = ("CronJob", "Job")
"""Workloads whose pods come to their end."""
WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet", *JOBS)
OTHER_POOLS = {"model-prefill": "prefill", "model-decode": "decode"}
"""Roles of pods that serve another model than the base's, by their names in labels."""


@dataclass(frozen=True)
class Container:
    """A container of a workload's pods."""

    pod: "Pod"
    spec: Object
    init: bool

    @property
    def name(self) -> str:
        return f"{self.pod.name}/{self.spec.get('name')}"

    @property
    def sidecar(self) -> bool:
        return self.init and self.spec.get("restartPolicy") == "Always"

    @property
    def process(self) -> str:
        """The process of Baton that it is; empty: another program."""
        match self.spec.get("args"):
            case ["serve", name] if name in SERVICE_SETTINGS and "command" not in self.spec:
                return str(name)
        return ""

    @property
    def ports(self) -> Sequence[Object]:
        return self.spec.get("ports", [])

    @property
    def mounts(self) -> Sequence[Object]:
        return self.spec.get("volumeMounts", [])

    def port(self, named: str | int) -> int | None:
        """Return the number of a port, given as a name or a number."""
        if isinstance(named, int):
            return named
        return next((p["containerPort"] for p in self.ports if p.get("name") == named), None)

    @cached_property
    def environment(self) -> Mapping[str, str]:
        """What the process finds: from its ConfigMaps, then its own."""
        found: dict[str, str] = {}
        for source in self.spec.get("envFrom", []):
            name = source.get("configMapRef", {}).get("name", "")
            found |= self.pod.rendered.data_of(name)
        for variable in self.spec.get("env", []):
            if "valueFrom" in variable:
                found[variable["name"]] = variable["name"].lower().replace("_", "-")
                continue
            value = str(variable.get("value", ""))
            for name, known in found.items():
                value = value.replace(f"$({name})", known)
            found[variable["name"]] = value
        return found


@dataclass(frozen=True)
class Pod:
    """The pods of a workload."""

    rendered: "Rendered"
    workload: Object

    @property
    def name(self) -> str:
        return name_of(self.workload)

    @property
    def role(self) -> str:
        """What it is to others, whichever model it serves: prefill, decode, frontend, ..."""
        name = self.labels.get("app.kubernetes.io/name", "")
        return OTHER_POOLS.get(name, name)

    @property
    def template(self) -> Object:
        spec: Object = self.workload["spec"]
        found: Object = spec.get("jobTemplate", {"spec": spec})["spec"]["template"]
        return found

    @property
    def spec(self) -> Object:
        found: Object = self.template["spec"]
        return found

    @cached_property
    def labels(self) -> Mapping[str, str]:
        return self.template.get("metadata", {}).get("labels", {})

    @property
    def replicas(self) -> int:
        found = self.workload["spec"].get("replicas", 1)
        return found if isinstance(found, int) else 1

    @property
    def volumes(self) -> Mapping[str, Object]:
        claims = self.workload["spec"].get("volumeClaimTemplates", [])
        templates = {claim["metadata"]["name"]: claim for claim in claims}
        # A claim takes the place of a volume of its name.
        return {v.get("name", ""): v for v in self.spec.get("volumes", [])} | templates

    @cached_property
    def containers(self) -> Sequence[Container]:
        return [
            *(Container(self, one, True) for one in self.spec.get("initContainers", [])),
            *(Container(self, one, False) for one in self.spec.get("containers", [])),
        ]

    @property
    def baton(self) -> Sequence[Container]:
        """The containers that are processes of Baton."""
        return [container for container in self.containers if container.process]


@dataclass(frozen=True)
class Rendered:
    """All objects of one rendering."""

    objects: Sequence[Object]

    def of(self, *kinds: str) -> Iterator[Object]:
        return (one for one in self.objects if one["kind"] in kinds)

    def named(self, kind: str, name: str) -> Object | None:
        return next((one for one in self.of(kind) if name_of(one) == name), None)

    @cached_property
    def pods(self) -> Sequence[Pod]:
        return [Pod(self, one) for one in self.of(*WORKLOADS)]

    @property
    def containers(self) -> Iterator[Container]:
        return (container for pod in self.pods for container in pod.containers)

    def data_of(self, config_map: str) -> Mapping[str, str]:
        found = self.named("ConfigMap", config_map)
        return (found or {}).get("data", {})

    def selected(self, selector: Object | None) -> Sequence[Pod]:
        """Return the pods of this namespace that a label selector chooses."""
        return [pod for pod in self.pods if matches(selector, pod.labels)]


def name_of(one: Object) -> str:
    return str(one.get("metadata", {}).get("name", ""))


def title(one: Object) -> str:
    return f"{one.get('kind')}/{name_of(one)}"


_WALKED: dict[int, tuple[Object, list[tuple[tuple[str, ...], Any]]]] = {}


def walk(one: Object) -> list[tuple[tuple[str, ...], Any]]:
    """Return every value of an object with its path; places in lists are `*`."""
    # The object is kept, so that no other one gets its id.
    if id(one) not in _WALKED:
        _WALKED[id(one)] = (one, list(_walk(one, ())))
    return _WALKED[id(one)][1]


def _walk(node: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, node
    below: Iterable[tuple[str, Any]] = ()
    if isinstance(node, dict):
        below = node.items()
    elif isinstance(node, list):
        below = (("*", one) for one in node)
    for key, value in below:
        yield from _walk(value, (*path, str(key)))
