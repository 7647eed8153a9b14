"""Models: where workers find them, and who may download them."""

from collections.abc import Iterator

from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.selectors import matches
from tests.k8s.manifests.view import Container, Rendered

HTTPS = 443
_PULL = ["baton", "models", "pull"]
_IN_IMAGE = "/opt/"


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
        wanted = any(_pulls(one) or _has_bucket(one) for one in pod.containers)
        if wanted != (HTTPS in open_ports):
            yield f"{pod.name} may{'' if not wanted else ' not'} reach the web"


def _pulls(container: Container) -> bool:
    return bool(container.spec.get("command", [])[:3] == _PULL)


def _has_bucket(container: Container) -> bool:
    """Return whether it keeps files of clients in a bucket."""
    url = container.environment.get("BATON_FILES_URL", "")
    return container.process == "frontend" and url.partition(":")[0] not in ("", "file")


def _target(container: Container) -> str:
    return str(container.spec["command"][4])


def _volumes(container: Container) -> set[tuple[str, str]]:
    return {(mount["name"], mount["mountPath"]) for mount in container.mounts}


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
