"""Which fields of a pod are acted on. Others are an error: what is passed over is not tested."""

from collections.abc import Iterator, Mapping
from typing import Any

ACTED_ON = {
    "pod": {
        "affinity",
        "containers",
        "enableServiceLinks",
        "hostname",
        "initContainers",
        "nodeSelector",
        "restartPolicy",
        "securityContext",
        "subdomain",
        "terminationGracePeriodSeconds",
        "topologySpreadConstraints",
        "volumes",
    },
    "container": {
        "args",
        "command",
        "env",
        "envFrom",
        "image",
        "lifecycle",
        "livenessProbe",
        "name",
        "ports",
        "readinessProbe",
        "resources",
        "restartPolicy",
        "securityContext",
        "startupProbe",
        "volumeMounts",
        "workingDir",
    },
    "pod securityContext": {"fsGroup", "runAsGroup", "runAsNonRoot", "runAsUser", "seccompProfile"},
    "container securityContext": {
        "allowPrivilegeEscalation",
        "capabilities",
        "readOnlyRootFilesystem",
        "runAsGroup",
        "runAsNonRoot",
        "runAsUser",
        "seccompProfile",
    },
    "probe": {
        "exec",
        "failureThreshold",
        "grpc",
        "httpGet",
        "initialDelaySeconds",
        "periodSeconds",
        "successThreshold",
        "tcpSocket",
        "timeoutSeconds",
    },
    "volume": {
        "configMap",
        "downwardAPI",
        "emptyDir",
        "hostPath",
        "name",
        "persistentVolumeClaim",
        "secret",
    },
    "volumeMount": {"mountPath", "name", "readOnly", "subPath"},
    "lifecycle": {"preStop"},
}
WITHOUT_EFFECT = {
    "pod": {
        # There is no API server, no quota, one network, and room for all.
        "automountServiceAccountToken",
        "dnsPolicy",
        "priorityClassName",
        "schedulerName",
        "serviceAccount",
        "serviceAccountName",
        "tolerations",
    },
    "container": {"imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy"},
    "pod securityContext": {"fsGroupChangePolicy"},
}


class UnsupportedError(Exception):
    """A manifest uses what this Kubernetes for tests does not do."""


def check_pod(spec: Mapping[str, Any], where: str) -> None:
    """Raise UnsupportedError, naming all of them, if fields of a pod are not acted on."""
    wrong = list(_unknown_in_pod(spec))
    if spec.get("restartPolicy", "Always") != "Always":
        wrong.append(f"restartPolicy {spec['restartPolicy']}")
    if wrong:
        raise UnsupportedError(f"{where}: not done by the pods of tests: {', '.join(wrong)}")


def _unknown_in_pod(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from _unknown("pod", spec)
    yield from _unknown("pod securityContext", spec.get("securityContext", {}))
    for volume in spec.get("volumes", ()):
        yield from _unknown("volume", volume)
    for container in (*spec.get("initContainers", ()), *spec["containers"]):
        yield from _unknown("container", container)
        yield from _unknown("container securityContext", container.get("securityContext", {}))
        yield from _unknown("lifecycle", container.get("lifecycle", {}))
        for mount in container.get("volumeMounts", ()):
            yield from _unknown("volumeMount", mount)
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            yield from _unknown("probe", container.get(kind, {}))


def _unknown(what: str, found: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(found.keys() - ACTED_ON[what] - WITHOUT_EFFECT.get(what, set())):
        yield f"{what}.{name}"
