"""What `podman run` is told, so that a container is what its spec says."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.k8s.manifests.quantity import quantity, whole
from tests.k8s.pods.objects.environment import ConfigError, expand

SHARES_PER_CPU = 1024
LEAST_SHARES = 2


@dataclass(frozen=True)
class Mount:
    """A directory or file of this machine, and where a container sees it."""

    source: Path
    target: str
    read_only: bool = False


def run_arguments(
    container: Mapping[str, Any],
    pod_security: Mapping[str, Any],
    *,
    image: str,
    image_user: str,
    environment: Mapping[str, str],
    mounts: Sequence[Mount],
) -> list[str]:
    """Return arguments for `podman run`, the image and the command among them.

    Args:
        container: its spec.
        pod_security: `securityContext` of its pod.
        image: that is run; it is never pulled.
        image_user: whom the image says.
        environment: all variables.
        mounts: all volumes.

    Raises:
        ConfigError: it would run as root, and must not.
    """
    found = ["--pull", "never", "--image-volume", "ignore", "--http-proxy=false"]
    found += _security(container, pod_security, image_user)
    found += _resources(container.get("resources", {}))
    for name, value in environment.items():
        found += ["--env", f"{name}={value}"]
    for mount in mounts:
        found += ["--volume", f"{mount.source}:{mount.target}{':ro' if mount.read_only else ''}"]
    if "workingDir" in container:
        found += ["--workdir", container["workingDir"]]
    if "command" in container:
        command = [expand(word, environment) for word in container["command"]]
        found += ["--entrypoint", json.dumps(command)]
    return [*found, image, *(expand(word, environment) for word in container.get("args", ()))]


def _security(
    container: Mapping[str, Any], pod: Mapping[str, Any], image_user: str
) -> Iterator[str]:
    own = container.get("securityContext", {})
    both = {**pod, **own}
    user = both.get("runAsUser")
    if both.get("runAsNonRoot"):
        effective = image_user.partition(":")[0] if user is None else str(user)
        if not effective.isdigit():
            raise ConfigError(f"runAsNonRoot: whether {effective or 'the user'} is root is unknown")
        if int(effective) == 0:
            raise ConfigError("runAsNonRoot: the container would run as root")
    if user is not None:
        group = both.get("runAsGroup", 0)
        yield from ("--user", f"{user}:{group}")
    if "fsGroup" in pod:
        yield from ("--group-add", str(pod["fsGroup"]))
    if own.get("readOnlyRootFilesystem"):
        yield from ("--read-only", "--read-only-tmpfs=false")
    if own.get("allowPrivilegeEscalation") is False:
        yield from ("--security-opt", "no-new-privileges")
    if both.get("seccompProfile", {}).get("type") == "Unconfined":
        yield from ("--security-opt", "seccomp=unconfined")
    capabilities = own.get("capabilities", {})
    for option, names in (("--cap-drop", "drop"), ("--cap-add", "add")):
        for name in capabilities.get(names, ()):
            yield from (option, name)


def _resources(resources: Mapping[str, Any]) -> Iterator[str]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    if "memory" in limits:
        memory = str(whole(limits["memory"]))
        yield from ("--memory", memory, "--memory-swap", memory)
    if "cpu" in limits:
        yield from ("--cpus", str(float(quantity(limits["cpu"]))))
    cpu = requests.get("cpu", limits.get("cpu"))
    if cpu is not None:
        shares = int(quantity(cpu) * SHARES_PER_CPU)
        yield from ("--cpu-shares", str(max(LEAST_SHARES, shares)))
