"""Fields of any object: words that the API server takes, numbers within bounds, operators."""

import re
from collections.abc import Iterator
from typing import Any

from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import Rendered, title, walk

# By field, and by the field that it is in where one name has several meanings.
WORDS: dict[str, set[str]] = {
    "accessModes.*": {"ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"},
    "allocateLoadBalancerNodePorts": {"true", "false"},
    "clusterIP": {"None"},
    "dnsPolicy": {"ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"},
    "effect": {"NoSchedule", "PreferNoSchedule", "NoExecute"},
    "emptyDir.medium": {"", "Memory"},
    "externalTrafficPolicy": {"Cluster", "Local"},
    "fsGroupChangePolicy": {"OnRootMismatch", "Always"},
    "hostPath.type": {"Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"},
    "httpGet.scheme": {"HTTP", "HTTPS"},
    "imagePullPolicy": {"Always", "IfNotPresent", "Never"},
    "internalTrafficPolicy": {"Cluster", "Local"},
    "ipFamilies.*": {"IPv4", "IPv6"},
    "ipFamilyPolicy": {"SingleStack", "PreferDualStack", "RequireDualStack"},
    "mountPropagation": {"None", "HostToContainer"},
    "nodeAffinityPolicy": {"Honor", "Ignore"},
    "nodeTaintsPolicy": {"Honor", "Ignore"},
    "podManagementPolicy": {"OrderedReady", "Parallel"},
    "policyTypes.*": {"Ingress", "Egress"},
    "preemptionPolicy": {"PreemptLowerPriority", "Never"},
    "protocol": {"TCP", "UDP", "SCTP"},
    "seccompProfile.type": {"RuntimeDefault", "Localhost", "Unconfined"},
    "sessionAffinity": {"None", "ClientIP"},
    "strategy.type": {"RollingUpdate", "Recreate"},
    "terminationMessagePolicy": {"File", "FallbackToLogsOnError"},
    "unhealthyPodEvictionPolicy": {"AlwaysAllow", "IfHealthyBudget"},
    "updateStrategy.type": {"RollingUpdate", "OnDelete"},
    "volumeMode": {"Filesystem", "Block"},
    "whenUnsatisfiable": {"DoNotSchedule", "ScheduleAnyway"},
    "whenDeleted": {"Retain", "Delete"},
    "whenScaled": {"Retain", "Delete"},
}
PORT = (1, 65535)
SECONDS = (1, 2**31 - 1)
BOUNDS: dict[str, tuple[int, int]] = {
    "containerPort": PORT,
    "endPort": PORT,
    "nodePort": (30000, 32767),
    "port": PORT,
    "targetPort": PORT,
    "replicas": (0, 1000),
    "minReplicas": (1, 1000),
    "maxReplicas": (1, 1000),
    "minReadySeconds": (0, 3600),
    "progressDeadlineSeconds": SECONDS,
    "revisionHistoryLimit": (1, 100),
    "terminationGracePeriodSeconds": (1, 86400),
    "initialDelaySeconds": (0, 3600),
    "periodSeconds": SECONDS,
    "timeoutSeconds": SECONDS,
    "successThreshold": SECONDS,
    "failureThreshold": SECONDS,
    "maxSkew": SECONDS,
    "minDomains": SECONDS,
    "defaultMode": (0, 0o777),
    "mode": (0, 0o777),
    "runAsUser": (1, 2**31 - 1),
    "runAsGroup": (1, 2**31 - 1),
    "fsGroup": (1, 2**31 - 1),
}
SELECTOR_OPERATORS = {"In", "NotIn", "Exists", "DoesNotExist"}
NODE_OPERATORS = SELECTOR_OPERATORS | {"Gt", "Lt"}
NODE_PARTS = {"nodeSelectorTerms", "preference"}
_PATH = re.compile(r"^/[^\s:]*$")


@rule
def words_are_known(rendered: Rendered) -> Iterator[str]:
    for one in rendered.objects:
        for path, value in walk(one):
            known = WORDS.get(".".join(path[-2:])) or WORDS.get("".join(path[-1:]))
            if known and isinstance(value, str) and value not in known:
                yield f"{title(one)}: {'.'.join(path)} is {value!r}, none of {sorted(known)}"


@rule
def numbers_are_within_bounds(rendered: Rendered) -> Iterator[str]:
    for one in rendered.objects:
        for path, value in walk(one):
            bounds = BOUNDS.get("".join(path[-1:]))
            if bounds and isinstance(value, int) and not bounds[0] <= value <= bounds[1]:
                yield f"{title(one)}: {'.'.join(path)} is {value}"


@rule
def operators_suit_their_values(rendered: Rendered) -> Iterator[str]:
    for one in rendered.objects:
        for path, value in walk(one):
            if not isinstance(value, dict):
                continue
            if "tolerations" in path[-2:] and path[-1] == "*":
                problem = _toleration(value)
            elif "operator" in value and "key" in value:
                problem = _expression(value, bool(NODE_PARTS & set(path)))
            else:
                continue
            if problem:
                yield f"{title(one)}: {'.'.join(path)} {problem}"


def _expression(value: dict[str, Any], of_nodes: bool) -> str:
    operator, values = value["operator"], value.get("values")
    if operator not in (NODE_OPERATORS if of_nodes else SELECTOR_OPERATORS):
        return f"has the operator {operator}"
    if operator in ("In", "NotIn") and not values:
        return f"has no values for {operator}"
    if operator in ("Exists", "DoesNotExist") and values:
        return f"has values for {operator}"
    return ""


def _toleration(value: dict[str, Any]) -> str:
    operator = value.get("operator", "Equal")
    if operator not in ("Exists", "Equal"):
        return f"has the operator {operator}"
    if operator == "Exists" and "value" in value:
        return "has a value for Exists"
    if operator == "Equal" and not value.get("key"):
        return "has no key for Equal"
    if "tolerationSeconds" in value and value.get("effect") != "NoExecute":
        return "has seconds without NoExecute"
    return ""


@rule
def paths_are_absolute(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        for mount in container.mounts:
            if not _PATH.match(mount["mountPath"]) or ".." in mount["mountPath"].split("/"):
                yield f"{container.name} mounts at {mount['mountPath']!r}"
            if "subPath" in mount or "subPathExpr" in mount:
                yield f"{container.name}: what changes in a volume does not reach a subPath"
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            path = container.spec.get(probe, {}).get("httpGet", {}).get("path", "/")
            if not path.startswith("/"):
                yield f"{container.name}: {probe} asks for {path!r}"
