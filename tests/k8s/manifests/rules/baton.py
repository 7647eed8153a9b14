"""Baton's own: its settings, its ports, how long it takes to end."""

from collections.abc import Iterator

from baton.settings import SERVICE_SETTINGS, StartupError
from tests.k8s.manifests.processes import (
    secret_files_of,
    secrets_of,
    settings_of,
    variables_of,
)
from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import Container, Pod, Rendered, title

ENDED_SECONDS = 5
"""What a process takes beyond its own limits: the interpreter, the kernel, the kubelet."""
_PROBES = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
_NOT_SETTINGS = {"BATON_CONFIG", "BATON_SECRETS_DIR"}
OF_COMPONENTS = {
    "MODEL_SOURCE",
    "SCALED_MODEL",
    "FRONTEND_KIND",
    "GPU_PRODUCT",
    "WORKER_MEMORY",
    "SHM_MEMORY",
}
"""Variables of the ConfigMap model that components use."""
EXTRAS = "-extras"
NEED_EXTRAS = {
    "BATON_STATE_URL_FILE",
    "BATON_USAGE_KAFKA_BROKERS",
    "BATON_USAGE_KAFKA_SASL_PASSWORD_FILE",
}
"""Settings whose clients are in localhost/baton-extras."""
KINDS = {"nixl", "vllm", "cuda"}
"""Ends of tags: what else an image contains."""
SECRETS_OF_PEOPLE = {
    "baton-state": {"url"},
    "baton-kafka": {"password"},
    "baton-backup": {"passphrase"},
    "baton-files": {"AWS_ACCESS_KEY_ID"},
}
"""Secrets that docs/kubernetes.md says how to make, and their keys."""


@rule
def programs_are_known(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        own = (
            container.spec.get("image", "")
            .rpartition("/")[2]
            .startswith(("baton:", "baton-extras:"))
        )
        if own and not container.process and "command" not in container.spec:
            yield f"{container.name}: {container.spec.get('args')} is no process of Baton"
    for pod in rendered.pods:
        if not pod.spec.get("containers"):
            yield f"{pod.name} has no containers"
        stores = [one for one in pod.baton if one.process == "kvstore"]
        if any(not one.init for one in stores) and len(pod.containers) > 1:
            yield f"{pod.name}: the store of a worker is a sidecar, which ends after it"


@rule
def variables_are_settings(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        if not container.process:
            continue
        own = [variable["name"] for variable in container.spec.get("env", [])]
        known = variables_of(container.process) | secret_files_of(container.process)
        for name in own:
            if name.startswith("BATON_") and name not in known | _NOT_SETTINGS:
                yield f"{container.name}: {name} is no setting of {container.process}"
        for name in secrets_of(container.process) & set(container.environment):
            yield f"{container.name}: {name} is a secret, and everybody may read it here"
        try:
            settings_of(container)
        except StartupError as error:
            yield f"{container.name}: {error}"
    every = frozenset[str]().union(*map(variables_of, SERVICE_SETTINGS))
    for one in rendered.of("ConfigMap"):
        if "grafana_dashboard" in one["metadata"].get("labels", {}):
            continue  # of Grafana, not of a process
        for name in one.get("data", {}):
            if name not in every | OF_COMPONENTS:
                yield f"{title(one)}: {name} is no setting"


@rule
def images_are_of_one_build(rendered: Rendered) -> Iterator[str]:
    """Of one registry and one version, whatever else the image of a process contains."""
    own = [one for one in rendered.containers if _is_baton(one)]
    if len({_build(one) for one in own}) != 1:
        yield f"there are {sorted({str(one.spec.get('image')) for one in own})}"


@rule
def clients_are_in_their_image(rendered: Rendered) -> Iterator[str]:
    """Those of databases and Kafka are in the image with extras alone, and take space."""
    for container in rendered.containers:
        if not _is_baton(container):
            continue
        given = {variable["name"] for variable in container.spec.get("env", [])}
        if container.process == "frontend":
            given |= set(container.environment)
        needs = bool(NEED_EXTRAS & given)
        has = _name(container).endswith(EXTRAS)
        if needs != has:
            yield f"{container.name} {'lacks' if needs else 'has no use for'} the image with extras"


def _is_baton(container: Container) -> bool:
    command = container.spec.get("command", [""])[0]
    return bool(container.process) or container.pod.name == "cli" or command == "baton"


def _name(container: Container) -> str:
    return str(container.spec.get("image")).rpartition(":")[0]


def _build(container: Container) -> tuple[str, str]:
    """Return where the image is from, and its tag without what else the image has."""
    tag = str(container.spec.get("image")).rpartition(":")[2]
    while (parts := tag.rpartition("-"))[2] in KINDS:
        tag = parts[0]
    return _name(container).removesuffix(EXTRAS), tag


@rule
def probes_ask_the_ops_port(rendered: Rendered) -> Iterator[str]:
    for container in rendered.containers:
        if not container.process:
            continue
        wanted = container.environment.get("BATON_OPS_PORT")
        for name, path in _PROBES.items():
            asked = container.spec.get(name, {}).get("httpGet", {})
            if asked.get("path") != path or str(container.port(asked.get("port", ""))) != wanted:
                yield f"{container.name}: {name} asks {asked}, not {path} of port {wanted}"
            if asked.get("scheme", "HTTP") != "HTTP":
                yield f"{container.name}: {name} speaks TLS to a plain port"
        for name, port in (("BATON_OPS_PORT", "ops"), ("BATON_GRPC_PORT", "grpc")):
            number = container.environment.get(name)
            if number not in [
                str(p["containerPort"]) for p in container.ports if port in p["name"]
            ]:
                yield f"{container.name}: {port} is at {number}, which is no port of it"
        for name in ("BATON_OPS_HOST", "BATON_GRPC_HOST"):
            if container.environment.get(name) != "0.0.0.0":
                yield f"{container.name} listens where nobody reaches it: {name}"


@rule
def grace_outlasts_the_drain(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        try:
            needed = _seconds(pod)
        except StartupError:
            continue  # another rule says so
        grace = pod.spec.get("terminationGracePeriodSeconds", 30)
        if pod.baton and grace < needed:
            yield f"{pod.name} is killed after {grace} s and may need {needed:g}"


def _seconds(pod: Pod) -> float:
    """Return how long a pod may take to end: its containers together, then its sidecars."""
    ends = {True: [0.0], False: [0.0]}
    for container in pod.baton:
        settings = settings_of(container)
        hook = container.spec.get("lifecycle", {}).get("preStop", {}).get("sleep", {})
        own = settings.drain_seconds + settings.close_seconds + ENDED_SECONDS
        ends[container.init].append(own + hook.get("seconds", 0))
    return max(ends[False]) + sum(ends[True])


@rule
def workers_name_their_store(rendered: Rendered) -> Iterator[str]:
    ids = {c.environment.get("BATON_INSTANCE_ID") for c in rendered.containers if c.process}
    for container in rendered.containers:
        if container.process not in ("prefill", "decode"):
            continue
        found = container.environment.get("BATON_KV_STORE_ID")
        near = [one for one in container.pod.baton if one.process == "kvstore"]
        stores = {one.environment.get("BATON_INSTANCE_ID") for one in near} or ids
        if not found or found not in stores:
            yield f"{container.name} has the store {found}, of {sorted(map(str, stores))}"


@rule
def instances_have_ids_and_addresses(rendered: Rendered) -> Iterator[str]:
    wanted = {"metadata.name", "spec.nodeName"}
    for container in rendered.containers:
        if not container.process:
            continue
        fields = {
            variable["name"]: variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            for variable in container.spec.get("env", [])
        }
        sources = {v["name"]: str(v.get("value", "")) for v in container.spec.get("env", [])}
        instance = sources.get("BATON_INSTANCE_ID", "")
        if not any(f"$({name})" in instance for name, path in fields.items() if path in wanted):
            yield f"{container.name} has the id {instance}, as all pods of it"
        host = sources.get("BATON_ADVERTISE_HOST", "")
        if host not in [f"$({name})" for name, path in fields.items() if path == "status.podIP"]:
            yield f"{container.name} says that it is at {host}"


@rule
def references_exist(rendered: Rendered) -> Iterator[str]:
    made = {one["spec"].get("secretName") for one in rendered.of("Certificate")}
    made |= set(SECRETS_OF_PEOPLE)
    for pod in rendered.pods:
        wanted: list[tuple[str, str]] = []
        for container in pod.containers:
            for source in container.spec.get("envFrom", []):
                wanted += [(kind, one.get("name", "")) for kind, one in source.items() if one]
            for variable in container.spec.get("env", []):
                for kind, one in variable.get("valueFrom", {}).items():
                    if kind.endswith("KeyRef"):
                        wanted.append((kind, one.get("name", "")))
                    known = rendered.data_of(one.get("name", ""))
                    if kind == "configMapKeyRef" and one.get("key") not in known:
                        yield f"{container.name}: {one} has no such key"
        for volume in pod.spec.get("volumes", []):
            secret = volume.get("secret", {})
            if not secret.get("optional"):
                wanted.append(("secretRef", secret.get("secretName", "")))
            wanted.append(("configMapRef", volume.get("configMap", {}).get("name", "")))
            claim = volume.get("persistentVolumeClaim", {}).get("claimName", "")
            wanted.append(("PersistentVolumeClaim", claim))
        wanted += [
            ("ResourceClaimTemplate", one.get("resourceClaimTemplateName", ""))
            for one in pod.spec.get("resourceClaims", [])
        ]
        wanted.append(("PriorityClass", pod.spec.get("priorityClassName", "")))
        wanted.append(("RuntimeClass", pod.spec.get("runtimeClassName", "")))
        wanted += [("secretRef", one["name"]) for one in pod.spec.get("imagePullSecrets", [])]
        for kind, name in wanted:
            found = name in made if kind.startswith("secret") else _there(rendered, kind, name)
            if name and not found:
                yield f"{pod.name} wants {kind} {name}, which is not there"


@rule
def secrets_are_where_they_are_looked_for(rendered: Rendered) -> Iterator[str]:
    """A process that does not find the file of a secret does not start."""
    every = frozenset[str]().union(*map(secret_files_of, SERVICE_SETTINGS))
    for container in rendered.containers:
        mounted = {
            mount["mountPath"]: container.pod.volumes.get(mount["name"], {})
            for mount in container.mounts
        }
        for name in every & set(container.environment):
            directory, _, key = container.environment[name].rpartition("/")
            secret = mounted.get(directory, {}).get("secret", {}).get("secretName")
            if key not in SECRETS_OF_PEOPLE.get(secret, ()):
                yield f"{container.name}: {name} is {directory}/{key}, where no such key is"


def _there(rendered: Rendered, kind: str, name: str) -> bool:
    kinds = {"configMapRef": "ConfigMap", "configMapKeyRef": "ConfigMap"}
    return rendered.named(kinds.get(kind, kind), name) is not None
