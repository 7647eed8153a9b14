"""etcd and certificates: who is where, and who it says it is."""

from collections.abc import Iterator

from tests.k8s.manifests.quantity import quantity, seconds
from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import Container, Rendered, name_of, title

FILES = {"CERT": "tls.crt", "KEY": "tls.key", "CA": "ca.crt"}
ROLE_OF = {"backup": "operator", "cli": "operator"}


@rule
def etcd_is_where_settings_say(rendered: Rendered) -> Iterator[str]:
    etcd = next((pod for pod in rendered.pods if pod.name == "etcd"), None)
    if etcd is None:
        return
    names = [f"etcd-{number}" for number in range(etcd.replicas)]
    wanted = ",".join(f"{name}.etcd:2379" for name in names)
    for container in rendered.containers:
        found = container.environment.get("BATON_ETCD_ENDPOINTS")
        if (container.process or container.pod.name == "cli") and found != wanted:
            yield f"{container.name} asks etcd at {found}, not {wanted}"
    environment = etcd.containers[0].environment
    scheme = "https" if "ETCD_CERT_FILE" in environment else "http"
    members = ",".join(f"{name}={scheme}://{name}.etcd:2380" for name in names)
    if environment.get("ETCD_INITIAL_CLUSTER") != members:
        yield f"etcd begins with {environment.get('ETCD_INITIAL_CLUSTER')}, not {members}"
    for name in ("LISTEN_CLIENT", "ADVERTISE_CLIENT", "LISTEN_PEER", "INITIAL_ADVERTISE_PEER"):
        url = environment.get(f"ETCD_{name}_URLS", "")
        port = 2379 if "CLIENT" in name else 2380
        if not url.startswith(f"{scheme}://") or not url.endswith(f":{port}"):
            yield f"etcd: {name} is {url}"
    if etcd.workload["spec"].get("podManagementPolicy") != "Parallel":
        yield "etcd's first member waits for the others, which wait for it"
    service = rendered.named("Service", "etcd")
    if service is not None and not service["spec"].get("publishNotReadyAddresses"):
        yield "etcd's members do not find each other before they are ready"
    if "volumeClaimTemplates" not in etcd.workload["spec"]:
        yield "etcd forgets all when its pods move"


@rule
def etcd_stays_within_its_disk(rendered: Rendered) -> Iterator[str]:
    """Its quota is at most half of the volume, and its history is compacted."""
    for one in rendered.of("StatefulSet"):
        if one["metadata"]["name"] != "etcd":
            continue
        (container,) = (c for c in rendered.containers if c.pod.workload is one)
        quota = int(container.environment.get("ETCD_QUOTA_BACKEND_BYTES", "0"))
        (claim,) = one["spec"].get("volumeClaimTemplates") or [{}]
        size = claim.get("spec", {}).get("resources", {}).get("requests", {}).get("storage")
        if size is not None and not 0 < 2 * quota <= quantity(size):
            yield f"etcd may grow to {quota} bytes on a volume of {size}"
        if container.environment.get("ETCD_AUTO_COMPACTION_RETENTION", "0") in ("0", ""):
            yield "etcd keeps its history forever"


@rule
def certificates_name_roles(rendered: Rendered) -> Iterator[str]:
    made = {one["spec"]["secretName"]: one for one in rendered.of("Certificate")}
    if not made:
        return
    for container in rendered.containers:
        if not container.process and container.pod.name not in ROLE_OF:
            continue
        role = container.process or ROLE_OF[container.pod.name]
        secrets = {container.environment.get(f"BATON_TLS_{name}", "") for name in FILES}
        directories = {path.rpartition("/")[0] for path in secrets}
        files = {
            name: container.environment.get(f"BATON_TLS_{name}", "").rpartition("/")[2]
            for name in FILES
        }
        if files != FILES or len(directories) != 1:
            yield f"{container.name} speaks plain text: {sorted(secrets)}"
            continue
        secret = _secret(container, directories.pop())
        names = made.get(secret, {}).get("spec", {}).get("dnsNames", [])
        if names != [f"{role}.baton"]:
            yield f"{container.name} says that it is {names}, from {secret or 'no Secret'}"
    for container in rendered.containers:
        if container.pod.name == "etcd" and "ETCD_CLIENT_CERT_AUTH" not in container.environment:
            yield "etcd asks nobody for a certificate"


@rule
def health_checks_have_a_port(rendered: Rendered) -> Iterator[str]:
    """Where a frontend has certificates, it takes a free one otherwise, which no policy knows."""
    for container in rendered.containers:
        secure = {"BATON_TLS_CERT", "BATON_PUBLIC_TLS_CERT"} & container.environment.keys()
        if container.process == "frontend" and secure:
            number = container.environment.get("BATON_HEALTH_PORT")
            if number not in [str(port["containerPort"]) for port in container.ports]:
                yield f"{container.name} answers health checks at {number}, which is no port of it"


@rule
def etcd_is_called_by_its_names(rendered: Rendered) -> Iterator[str]:
    """gRPC takes a wildcard for one part of a name, and never right before the last one."""
    etcd = next((pod for pod in rendered.pods if pod.name == "etcd"), None)
    made = [one["spec"] for one in rendered.of("Certificate")]
    if etcd is None or not made:
        return
    secret = etcd.volumes.get("tls", {}).get("secret", {}).get("secretName")
    names = {name for one in made if one["secretName"] == secret for name in one["dnsNames"]}
    for container in rendered.containers:
        for endpoint in container.environment.get("BATON_ETCD_ENDPOINTS", "").split(","):
            host = endpoint.rpartition(":")[0]
            above = host.partition(".")[2]
            known = host in names or ("." in above and f"*.{above}" in names)
            if host and not known:
                yield f"{container.name} calls etcd {host}, its certificate {sorted(names)}"


def _secret(container: Container, directory: str) -> str:
    """Return the Secret that a container finds in a directory."""
    for mount in container.mounts:
        if mount["mountPath"] == directory and mount.get("readOnly"):
            volume = container.pod.volumes.get(mount["name"], {})
            return str(volume.get("secret", {}).get("secretName", ""))
    return ""


@rule
def certificates_are_issued(rendered: Rendered) -> Iterator[str]:
    secrets = [one["spec"].get("secretName") for one in rendered.of("Certificate")]
    if len(set(secrets)) != len(secrets):
        yield "two certificates are kept in one Secret"
    for one in rendered.of("Certificate"):
        spec = one["spec"]
        if (
            rendered.named(spec["issuerRef"].get("kind", "Issuer"), spec["issuerRef"]["name"])
            is None
        ):
            yield f"{title(one)} has no issuer"
        try:
            if seconds(spec["renewBefore"]) * 2 > seconds(spec["duration"]):
                yield f"{title(one)} is renewed all the time"
        except ValueError as error:
            yield f"{title(one)}: {error}"
        if not spec.get("isCA") and set(spec.get("usages", [])) < {"server auth", "client auth"}:
            yield f"{title(one)} may not be shown by both ends"
    for one in rendered.of("Issuer"):
        secret = one["spec"].get("ca", {}).get("secretName")
        if secret and secret not in secrets:
            yield f"{title(one)} signs with {secret}, which nobody makes"
        if not secret and name_of(one) != "self-signed":
            yield f"{title(one)} signs for nobody"


@rule
def secrets_are_read_by_their_user_only(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        for volume in pod.spec.get("volumes", []):
            mode = volume.get("secret", {}).get("defaultMode", 0o644)
            if "secret" in volume and mode & 0o337:
                yield f"{pod.name}: others may read {volume['name']}"
        for container in pod.containers:
            for mount in container.mounts:
                if "secret" in pod.volumes.get(mount["name"], {}) and not mount.get("readOnly"):
                    yield f"{container.name} may write to {mount['name']}"
