"""Pod security: `restricted`, and a little more."""

from collections.abc import Iterator

from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import Rendered, title

USER = 65532
RESTRICTED_VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
HOST_FIELDS = ("hostNetwork", "hostPID", "hostIPC", "hostUsers")
UNSAFE_FIELDS = ("sysctls", "seLinuxOptions", "windowsOptions", "appArmorProfile")


@rule
def namespace_is_restricted(rendered: Rendered) -> Iterator[str]:
    for namespace in rendered.of("Namespace"):
        labels = namespace["metadata"].get("labels", {})
        for mode in ("enforce", "audit", "warn"):
            if labels.get(f"pod-security.kubernetes.io/{mode}") != "restricted":
                yield f"{title(namespace)} does not {mode} restricted"


@rule
def nobody_is_root(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        context = pod.spec.get("securityContext", {})
        if context.get("runAsNonRoot") is not True:
            yield f"{pod.name} may run as root"
        for kind in ("runAsUser", "runAsGroup", "fsGroup"):
            if context.get(kind) != USER:
                yield f"{pod.name} has {kind} {context.get(kind)}, not {USER}"
        if 0 in context.get("supplementalGroups", []):
            yield f"{pod.name} is in root's group"
    for container in rendered.containers:
        for kind in ("runAsNonRoot", "runAsUser", "runAsGroup"):
            if kind in container.spec.get("securityContext", {}):
                yield f"{container.name} has {kind} of its own"


@rule
def system_calls_are_filtered(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        if pod.spec.get("securityContext", {}).get("seccompProfile") != {"type": "RuntimeDefault"}:
            yield f"{pod.name} has not the seccomp profile RuntimeDefault"
    for container in rendered.containers:
        if "seccompProfile" in container.spec.get("securityContext", {}):
            yield f"{container.name} has a seccomp profile of its own"


@rule
def privileges_cannot_grow(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        context = container.spec.get("securityContext", {})
        if context.get("allowPrivilegeEscalation") is not False:
            yield f"{container.name} allows privilege escalation"
        if context.get("privileged"):
            yield f"{container.name} is privileged"


@rule
def capabilities_are_dropped(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        if container.spec.get("securityContext", {}).get("capabilities") != {"drop": ["ALL"]}:
            yield f"{container.name} keeps capabilities"


@rule
def root_is_read_only(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        if container.spec.get("securityContext", {}).get("readOnlyRootFilesystem") is not True:
            yield f"{container.name} may write to its image"


@rule
def pods_are_apart_from_the_host(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        for field in HOST_FIELDS:
            if field in pod.spec:
                yield f"{pod.name} has {field}"
    for container in rendered.containers:
        for port in container.ports:
            if "hostPort" in port or "hostIP" in port:
                yield f"{container.name} takes a port of the host"
        contexts = (
            container.spec.get("securityContext", {}),
            container.pod.spec["securityContext"],
        )
        for context in contexts:
            for field in (*UNSAFE_FIELDS, "procMount"):
                if field in context:
                    yield f"{container.name} has {field}"


@rule
def volumes_are_of_restricted_kinds(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        for volume in pod.spec.get("volumes", []):
            if bad := set(volume) - {"name"} - RESTRICTED_VOLUMES:
                yield f"{pod.name} has a volume of {', '.join(sorted(bad))}"


@rule
def pods_have_no_token(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        if pod.spec.get("automountServiceAccountToken") is not False:
            yield f"{pod.name} mounts a token"
        account = rendered.named("ServiceAccount", pod.spec.get("serviceAccountName", ""))
        if account is None:
            yield f"{pod.name} has no ServiceAccount of its own"
        elif account.get("automountServiceAccountToken") is not False:
            yield f"{title(account)} mounts its token"


@rule
def services_are_not_in_the_environment(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        if pod.spec.get("enableServiceLinks") is not False:
            yield f"{pod.name} gets variables of every Service"
