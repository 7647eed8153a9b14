"""A Deployment, a StatefulSet or a DaemonSet: what its pods are, and which it wants."""

import hashlib
import json
import secrets
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from tests.k8s.pods.controllers.rollout import (
    Plan,
    PodView,
    Strategy,
    plan_daemon_set,
    plan_deployment,
    plan_stateful_set,
)
from tests.k8s.pods.kubelet.pod import Pod, PodIdentity
from tests.k8s.pods.objects.manifests import Object

HASH_LABEL = "pod-template-hash"
POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"


class Workload:
    """What a manifest wants, and how far it is.

    Args:
        manifest: of a Deployment, a StatefulSet or a DaemonSet; a copy is kept.
        nodes: names of all, whether they take pods or not.
    """

    def __init__(self, manifest: Object, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        self.replace(manifest)

    def replace(self, manifest: Object) -> None:
        """Want something else from now on."""
        self.kind: str = manifest["kind"]
        self.name: str = manifest["metadata"]["name"]
        self.spec: dict[str, Any] = deepcopy(manifest["spec"])
        if self.kind != "DaemonSet":
            self.spec.setdefault("replicas", 1)

    @property
    def wanted(self) -> int:
        """How many pods it wants."""
        return len(self._nodes) if self.kind == "DaemonSet" else int(self.spec["replicas"])

    @property
    def key(self) -> str:
        """Its kind and name, as kubectl writes them."""
        return f"{self.kind.lower()}/{self.name}"

    @property
    def revision(self) -> str:
        """What is different when the template of its pods is."""
        text = json.dumps(self.spec["template"], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def plan(self, pods: Sequence[Pod]) -> Plan:
        """Return what is to be done now, given its pods."""
        views = [self._view(pod) for pod in pods]
        if self.kind == "StatefulSet":
            return plan_stateful_set(self.spec, self.name, self.revision, views)
        if self.kind == "DaemonSet":
            return plan_daemon_set(self.spec, self.revision, self._nodes, views)
        strategy = Strategy.of(self.spec)
        return plan_deployment(self.spec["replicas"], self.revision, strategy, views)

    def rolled_out(self, pods: Sequence[Pod]) -> bool:
        """Return whether exactly the pods that it wants are there, and available."""
        views = [self._view(pod) for pod in pods]
        return len(views) == self.wanted and all(
            pod.available and not pod.terminating and pod.revision == self.revision for pod in views
        )

    def new_pod(self, node: str, ordinal: int | None = None) -> PodIdentity:
        """Return the next pod; of a StatefulSet that with this ordinal."""
        template = deepcopy(self.spec["template"])
        metadata, spec = template.get("metadata", {}), template["spec"]
        labels = dict(metadata.get("labels", {}))
        if ordinal is None:
            labels[HASH_LABEL] = self.revision
            name = f"{self.name}-{self.revision}-{secrets.token_hex(3)[:5]}"
        else:
            name = f"{self.name}-{ordinal}"
            labels[POD_NAME_LABEL] = name
            spec["hostname"], spec["subdomain"] = name, self.spec["serviceName"]
            for claim in self.spec.get("volumeClaimTemplates", ()):
                volume = claim["metadata"]["name"]
                source = {"claimName": f"{volume}-{name}"}
                others = [one for one in spec.get("volumes", ()) if one["name"] != volume]
                # As Kubernetes has it: a claim takes the place of a volume of its name.
                spec["volumes"] = [*others, {"name": volume, "persistentVolumeClaim": source}]
        return PodIdentity(
            name,
            secrets.token_hex(4),
            self.key,
            self.revision,
            node,
            labels,
            metadata.get("annotations", {}),
            spec,
        )

    def labels(self) -> dict[str, str]:
        """Return the labels that a new pod has for the scheduler."""
        own = dict(self.spec["template"].get("metadata", {}).get("labels", {}))
        return own if self.kind == "StatefulSet" else {**own, HASH_LABEL: self.revision}

    def _view(self, pod: Pod) -> PodView:
        return PodView(
            pod.name,
            pod.identity.revision,
            pod.ready,
            pod.available(self.spec.get("minReadySeconds", 0)),
            pod.terminating,
            pod.identity.node,
        )
