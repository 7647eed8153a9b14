"""What a pod says must hang together."""

import re
from collections.abc import Iterator

from tests.k8s.manifests.render import Object
from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import JOBS, Container, Rendered

_PORT_NAME = re.compile(r"^(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*$")
_VARIABLE = re.compile(r"^[A-Z_][A-Z0-9_]*$")
# Models take their time to load; a process that is starved for a while is not dead.
_PATIENCE = {"startupProbe": 120, "livenessProbe": 15, "readinessProbe": 1}
_REFERENCE = re.compile(r"\$\(([^)]*)\)")
_FIELDS = re.compile(
    r"^(metadata\.(name|namespace|uid|labels\['[^']+'\]|annotations\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs))$"
)
_IMAGE = re.compile(
    r"^([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._/-]+(:(?!latest$)[A-Za-z0-9_][A-Za-z0-9_.-]*)?(@sha256:[0-9a-f]{64})?$"
)


@rule
def mounts_have_volumes(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        mounted: set[str] = set()
        written = {
            mount["name"]
            for container in pod.containers
            for mount in container.mounts
            if container.init and not container.sidecar and not mount.get("readOnly")
        }
        for container in pod.containers:
            paths = [mount["mountPath"] for mount in container.mounts]
            if len(paths) != len(set(paths)):
                yield f"{container.name} mounts two volumes at one path"
            for mount in container.mounts:
                mounted.add(mount["name"])
                temporary = "emptyDir" in pod.volumes.get(mount["name"], {})
                unwritten = mount.get("readOnly") and mount["name"] not in written
                if temporary and unwritten:
                    yield f"{container.name} may not write to {mount['name']}, where nothing is"
                if mount["name"] not in pod.volumes:
                    yield f"{container.name} mounts {mount['name']}, which is no volume"
        for name in set(pod.volumes) - mounted:
            yield f"{pod.name}: nothing mounts the volume {name}"
        for name, volume in pod.volumes.items():
            if len(volume) != 2 and "spec" not in volume:
                yield f"{pod.name}: the volume {name} has {len(volume) - 1} sources"


@rule
def port_names_are_allowed(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        for port in container.ports:
            name = port.get("name", "")
            if not _PORT_NAME.match(name) or len(name) > 15:
                yield f"{container.name}: a port may not be called {name!r}"


@rule
def ports_are_there_once(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        ports = [port for container in pod.containers for port in container.ports]
        numbers = [(port["containerPort"], port.get("protocol", "TCP")) for port in ports]
        names = [port.get("name") for port in ports]
        # Containers of a pod share its addresses.
        if len(set(numbers)) != len(numbers) or len(set(names)) != len(names):
            yield f"{pod.name} has two ports of one number or name"


@rule
def variables_are_defined_before_use(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        known = set(container.environment) - {v["name"] for v in container.spec.get("env", [])}
        for variable in container.spec.get("env", []):
            name = variable["name"]
            if not _VARIABLE.match(name) or name in known - set(_shared(container)):
                yield f"{container.name}: {name} is no name, or there twice"
            if len(variable) != 2:
                yield f"{container.name}: {name} has not one value"
            for used in _REFERENCE.findall(str(variable.get("value", ""))):
                if used not in known:
                    yield f"{container.name}: {name} uses {used}, which is not defined before"
            path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if path is not None and not _FIELDS.match(path):
                yield f"{container.name}: {name} is of {path}, which is no field of a pod"
            known.add(name)
        for argument in (*container.spec.get("command", []), *container.spec.get("args", [])):
            for used in _REFERENCE.findall(argument):
                if used not in known:
                    yield f"{container.name}: an argument uses {used}, which is not defined"


def _shared(container: Container) -> Iterator[str]:
    """Yield what is in the ConfigMaps of a container, which its own variables may override."""
    for source in container.spec.get("envFrom", []):
        yield from container.pod.rendered.data_of(source.get("configMapRef", {}).get("name", ""))


@rule
def containers_are_restarted(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        job = pod.workload["kind"] in JOBS
        if pod.spec.get("restartPolicy", "Always") != ("OnFailure" if job else "Always"):
            yield f"{pod.name} is not restarted"
        if "activeDeadlineSeconds" in pod.spec or "ephemeralContainers" in pod.spec:
            yield f"{pod.name} is for a while only"
        for container in pod.containers:
            # A command of Baton's comes to its end; other init containers run beside the others.
            ends = container.init and container.spec.get("command", [""])[0] == "baton"
            sidecar = container.init and not ends
            if sidecar != ("restartPolicy" in container.spec) or sidecar != container.sidecar:
                yield f"{container.name}: init containers are sidecars, and others have no policy"


@rule
def images_have_versions(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        image = container.spec.get("image", "")
        if not _IMAGE.match(image) or ":" not in image.rpartition("/")[2]:
            yield f"{container.name}: {image!r} is no image of one version"
        if container.spec.get("imagePullPolicy", "IfNotPresent") == "Never":
            yield f"{container.name} never pulls its image"


@rule
def probes_can_pass(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        for name in ("startupProbe", "livenessProbe", "readinessProbe"):
            probe = container.spec.get(name)
            if probe is None:
                if container.ports and not container.process:  # of processes another rule says so
                    yield f"{container.name} has no {name}"
                continue
            kinds = set(probe) & {"httpGet", "tcpSocket", "grpc", "exec"}
            if kinds != {"httpGet"}:
                yield f"{container.name}: {name} has {sorted(kinds)} and not httpGet"
                continue
            number = container.port(probe["httpGet"].get("port", ""))
            if number not in [port["containerPort"] for port in container.ports]:
                yield f"{container.name}: {name} asks a port that it does not have"
            if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
                yield f"{container.name}: {name} must pass once"
            if _patience(probe) < _PATIENCE[name]:
                yield f"{container.name}: {name} gives up after {_patience(probe)} s"
            if probe.get("timeoutSeconds", 1) < 3:
                yield f"{container.name}: {name} gives a busy process less than 3 s"


def _patience(probe: Object) -> int:
    """Return for how many seconds a probe may fail."""
    return int(probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3))


@rule
def hooks_end_before_the_grace_does(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        lifecycle = container.spec.get("lifecycle", {})
        grace = container.pod.spec.get("terminationGracePeriodSeconds", 30)
        for name, hook in lifecycle.items():
            if set(hook) != {"sleep"}:
                yield f"{container.name}: {name} runs something: the image needs no shell"
            elif not 0 < hook["sleep"].get("seconds", 0) < grace:
                yield f"{container.name}: {name} lasts {hook['sleep']}, of {grace} s"
