"""Services and policies: who reaches whom."""

import ipaddress
from collections.abc import Iterator

from tests.k8s.manifests.render import Object
from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.selectors import matches
from tests.k8s.manifests.view import Pod, Rendered, title

WORKERS = ("prefill", "decode")
STORES = ("prefill", "decode", "kvstore")
GRPC, STORE, HEALTH, HTTP, ETCD, ETCD_PEER, OTLP = 50051, 50052, 50053, 8000, 2379, 2380, 4317
OPS = (9090, 9091, 2381)
EVERYONE = ("frontend", "router", *STORES, "picker", "cli")
ARROWS = {
    *(("frontend", to, GRPC) for to in ("router", *WORKERS)),
    ("picker", "router", GRPC),
    *(("router", to, GRPC) for to in WORKERS),
    *((source, to, STORE) for source in ("router", *STORES) for to in STORES),
    *((source, "etcd", ETCD) for source in (*EVERYONE, "backup", "etcd")),
    ("etcd", "etcd", ETCD_PEER),
    *(("cli", to, GRPC) for to in ("frontend", "router", *WORKERS)),
    *(("cli", to, STORE) for to in STORES),
    *(("cli", to, port) for to in EVERYONE for port in (9090, 9091)),
    *(("cli", "frontend", port) for port in (HTTP, HEALTH)),
}
"""The arrows of the design: from, to, port. Nobody else connects to anybody."""
PUBLIC = "NetworkPolicy/clients"
"""The one policy that is for anybody."""
# Sides of a policy: the field, where peers are, the type.
_INGRESS = ("ingress", "from", "Ingress")
_EGRESS = ("egress", "to", "Egress")


@rule
def services_reach_pods(rendered: Rendered) -> Iterator[str]:
    for service in rendered.of("Service"):
        spec = service["spec"]
        pods = rendered.selected({"matchLabels": spec.get("selector") or {"": ""}})
        if len(pods) != 1:
            yield f"{title(service)} is for the pods of {[pod.name for pod in pods]}"
        ports = spec.get("ports", [])
        names = [port.get("name") for port in ports]
        if len(set(names)) != len(names) or None in names or not ports:
            yield f"{title(service)} has ports without names of their own"
        for port in ports:
            target = port.get("targetPort", port.get("port"))
            for pod in pods:
                if not any(_listens(pod, target, port.get("protocol", "TCP"))):
                    yield f"{title(service)}: nobody listens on {target}"
        exposed = "externalIPs" in spec or any("nodePort" in port for port in ports)
        if exposed or spec.get("type", "ClusterIP") != "ClusterIP":
            yield f"{title(service)} is open to the world"
        if spec.get("publishNotReadyAddresses") and spec.get("clusterIP") != "None":
            yield f"{title(service)} sends requests to pods that are not ready"


def _listens(pod: Pod, target: str | int, protocol: str) -> Iterator[bool]:
    for container in pod.containers:
        number = container.port(target)
        yield number in [
            port["containerPort"]
            for port in container.ports
            if port.get("protocol", "TCP") == protocol
        ]


@rule
def clients_find_every_pod(rendered: Rendered) -> Iterator[str]:
    for role in ("frontend", "router"):
        kinds = {
            service["spec"].get("clusterIP") == "None"
            for service in rendered.of("Service")
            if service["spec"].get("selector", {}).get("app.kubernetes.io/name") == role
        }
        if kinds != {True, False}:
            yield f"{role} has not both a Service with an address and a headless one"


@rule
def policies_are_the_arrows(rendered: Rendered) -> Iterator[str]:
    policies = list(rendered.of("NetworkPolicy"))
    if not policies:
        return
    denied = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    if not any(policy["spec"] == denied for policy in policies):
        yield "nothing denies by default"
    nixl = any("nixl" in str(c.environment) for c in rendered.containers)
    rules = {
        (pod.name, side): _rules(policies, pod, side)
        for pod in rendered.pods
        for side in (_INGRESS, _EGRESS)
    }
    for to in rendered.pods:
        for port in [p["containerPort"] for c in to.containers for p in c.ports]:
            for source in rendered.pods:
                if nixl and {source.role, to.role} <= set(STORES):
                    continue  # on ports of its own choice
                wanted = (source.role, to.role, port) in ARROWS
                # Anybody may be a client.
                public = to.role == "frontend" and port in (HTTP, GRPC)
                if _lets(rules[source.name, _EGRESS], "to", to, port) != wanted or (
                    _lets(rules[to.name, _INGRESS], "from", source, port) != wanted and not public
                ):
                    closed = "closed" if wanted else "open"
                    yield f"{source.name} → {to.name}:{port} is {closed}, at one end or both"


def _has(pod: Pod, port: int) -> bool:
    return any(p["containerPort"] == port for c in pod.containers for p in c.ports)


def _rules(policies: list[Object], pod: Pod, side: tuple[str, str, str]) -> list[Object] | None:
    """Return what one side of a pod lets through; None: all, for no policy is about it."""
    field, _, kind = side
    mine = [
        policy["spec"]
        for policy in policies
        if matches(policy["spec"].get("podSelector", {}), pod.labels)
        and kind in policy["spec"].get("policyTypes", ["Ingress"])
    ]
    return [one for spec in mine for one in spec.get(field, [])] if mine else None


def _lets(rules: list[Object] | None, peers: str, peer: Pod, port: int) -> bool:
    return rules is None or any(
        _port(one.get("ports"), port) and _peer(one.get(peers), peer) for one in rules
    )


def _peer(peers: list[Object] | None, pod: Pod) -> bool:
    if not peers:
        return True
    return any(
        "namespaceSelector" not in one and matches(one.get("podSelector"), pod.labels)
        for one in peers
    )


def _port(ports: list[Object] | None, port: int) -> bool:
    if not ports:
        return True
    return any(
        one.get("protocol", "TCP") == "TCP"
        and one["port"] <= port <= one.get("endPort", one["port"])
        for one in ports
    )


@rule
def policies_name_peers_and_ports(rendered: Rendered) -> Iterator[str]:
    for policy in rendered.of("NetworkPolicy"):
        for field, peers, _ in (_INGRESS, _EGRESS):
            for one in policy["spec"].get(field, []):
                if not one.get("ports") or (peers not in one and title(policy) != PUBLIC):
                    yield f"{title(policy)}: {field} of anybody, or at any port"
                blocks = [peer["ipBlock"] for peer in one.get(peers) or [] if "ipBlock" in peer]
                for cidr in [c for b in blocks for c in (b["cidr"], *b.get("except", []))]:
                    if not _network(cidr):
                        yield f"{title(policy)}: {cidr} is no network"
                if any(not any(peer.values()) for peer in one.get(peers) or []):
                    yield f"{title(policy)}: {field} of everybody"


def _network(cidr: str) -> bool:
    try:
        return ipaddress.ip_network(cidr).prefixlen >= 0
    except ValueError:
        return False


@rule
def policies_let_the_cluster_in(rendered: Rendered) -> Iterator[str]:
    """Names, scrapes and traces: from and to other namespaces."""
    policies = list(rendered.of("NetworkPolicy"))
    if not policies:
        return
    for pod in rendered.pods:
        wanted = [
            (_EGRESS, "kube-system", 53, "UDP"),
            (_EGRESS, "kube-system", 53, "TCP"),
            *([(_EGRESS, "monitoring", OTLP, "TCP")] if pod.workload["kind"] != "Job" else []),
            *((_INGRESS, "monitoring", port, "TCP") for port in OPS if _has(pod, port)),
        ]
        for side, namespace, port, protocol in wanted:
            if not _foreign(policies, pod, side, namespace, port, protocol):
                yield f"{pod.name}: {side[0]} of {namespace}:{port}/{protocol} is closed"
    if not _foreign(policies, rendered.selected(_FRONTENDS)[0], _INGRESS, "*", HTTP, "TCP"):
        yield "clients do not reach frontends"


_FRONTENDS: Object = {"matchLabels": {"app.kubernetes.io/name": "frontend"}}


def _foreign(
    policies: list[Object], pod: Pod, side: tuple[str, str, str], namespace: str, port: int,
    protocol: str,
) -> bool:  # fmt: skip
    field, peers, kind = side
    labels = {"kubernetes.io/metadata.name": namespace}
    for policy in policies:
        spec = policy["spec"]
        if kind not in spec.get("policyTypes", []) or not matches(spec["podSelector"], pod.labels):
            continue
        for one in spec.get(field, []):
            found = one.get(peers)
            peer = found is None or any(
                "podSelector" not in p and matches(p.get("namespaceSelector"), labels)
                for p in found
            )
            if peer and any(
                (p["port"], p.get("protocol", "TCP")) == (port, protocol) for p in one["ports"]
            ):
                return True
    return False
