"""Models: where workers find them, who may download them, and whose load a scaler counts."""

import re
from collections.abc import Iterator

from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.selectors import matches
from tests.k8s.manifests.view import Container, Pod, Rendered, title

HTTPS = 443
_PULL = ["baton", "models", "pull"]
_IN_IMAGE = "/opt/"
_MATCHER = re.compile(r'\bmodel_name=~"([^"]*)"')
_ROLE = re.compile(r'\bapp_kubernetes_io_name=~"([^"]*)"')


@rule
def workers_find_their_model(rendered: Rendered) -> Iterator[str]:
    """In a volume, at the place to which a download of their pod goes, if there is one."""
    for container in rendered.containers:
        if container.process not in ("prefill", "decode"):
            continue
        path = container.environment.get("BATON_ENGINE_MODEL", _IN_IMAGE)
        places = [mount["mountPath"] for mount in container.mounts]
        if not path.startswith(_IN_IMAGE) and not any(_is_below(path, one) for one in places):
            yield f"{container.name} looks for its model at {path}, where no volume is"
        for other in container.pod.containers:
            if not _pulls(other):
                continue
            if _target(other) != path:
                yield f"{container.name} looks for {path}, and {_target(other)} is downloaded"
            for shared in _volumes(other) - _volumes(container):
                if _is_below(_target(other), shared[1]) or shared[1] in other.spec["command"]:
                    yield f"{container.name} does not mount {shared[1]}, where its model is"


@rule
def downloads_have_their_source(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        if not _pulls(container):
            continue
        command = container.spec["command"]
        source = command[3].removeprefix("$(").removesuffix(")") if len(command) > 3 else ""
        found = container.environment.get(source, "")
        if not found.startswith(("hf://", "s3://", "https://")):
            yield f"{container.name} downloads {found or command[3:4]}, which is no address"


@rule
def downloads_are_let_out(rendered: Rendered) -> Iterator[str]:
    """And nobody else is, at the port of the web."""
    policies = list(rendered.of("NetworkPolicy"))
    for pod in rendered.pods if policies else ():
        open_ports = {
            port["port"]
            for policy in policies
            if matches(policy["spec"]["podSelector"], pod.labels)
            for one in policy["spec"].get("egress", [])
            if any("ipBlock" in peer for peer in one.get("to", []))
            for port in one.get("ports", [])
        }
        wanted = any(_pulls(container) for container in pod.containers)
        if wanted != (HTTPS in open_ports):
            yield f"{pod.name} may{'' if not wanted else ' not'} reach the web"


@rule
def scalers_count_their_own_pool(rendered: Rendered) -> Iterator[str]:
    """By labels that say role and model: names of pods of several models begin alike."""
    for one in rendered.of("ScaledObject"):
        target = one["spec"].get("scaleTargetRef", {}).get("name", "")
        pods = [pod for pod in rendered.pods if pod.name == target]
        for trigger in one["spec"].get("triggers", []):
            query = trigger["metadata"].get("query", "")
            if re.search(r"\bpod=", query):
                yield f"{title(one)} counts pods by their names"
            for pod in pods:
                yield from (f"{title(one)} {text}" for text in _miscounted(pod, query))


def _miscounted(pod: Pod, query: str) -> Iterator[str]:
    if pod.role not in ("prefill", "decode"):
        return
    if any(not re.fullmatch(role, pod.labels["app.kubernetes.io/name"]) or not role.endswith(
        pod.role
    ) for role in _ROLE.findall(query) or [""]):  # fmt: skip
        yield f"counts others than {pod.role}"
    wanted = {one.environment.get("SCALED_MODEL", "") for one in pod.baton if not one.init}
    if set(_MATCHER.findall(query)) != wanted:
        yield f"counts models other than {sorted(wanted)}"


def _pulls(container: Container) -> bool:
    return bool(container.spec.get("command", [])[:3] == _PULL)


def _target(container: Container) -> str:
    return str(container.spec["command"][4])


def _volumes(container: Container) -> set[tuple[str, str]]:
    return {(mount["name"], mount["mountPath"]) for mount in container.mounts}


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
