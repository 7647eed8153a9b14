"""Who connects to what is not of the cluster: an etcd, a database, brokers."""

from collections.abc import Iterator

from baton.settings import StartupError
from tests.k8s.manifests.processes import settings_of
from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.selectors import matches
from tests.k8s.manifests.view import Pod, Rendered

ETCD, POSTGRES, KAFKA = 2379, 5432, 9093


@rule
def those_who_use_others_reach_them(rendered: Rendered) -> Iterator[str]:
    """And nobody else does."""
    policies = list(rendered.of("NetworkPolicy"))
    own_etcd = rendered.named("Service", "etcd") is not None
    for pod in rendered.pods if policies else ():
        wanted = set(_used(pod, own_etcd))
        open_ports = {
            port["port"]
            for policy in policies
            if matches(policy["spec"]["podSelector"], pod.labels)
            for one in policy["spec"].get("egress", [])
            if any("ipBlock" in peer for peer in one.get("to", []))
            for port in one.get("ports", [])
        }
        for port in (ETCD, POSTGRES, KAFKA):
            if (port in wanted) != (port in open_ports):
                yield f"{pod.name} may{'' if port in open_ports else ' not'} connect to port {port}"


def _used(pod: Pod, own_etcd: bool) -> Iterator[int]:
    if not own_etcd and (pod.baton or pod.name in ("cli", "backup")):
        yield ETCD
    for container in pod.baton:
        if container.process != "frontend":
            continue
        try:
            found = settings_of(container)
        except StartupError:
            continue  # another rule says so
        if found.state.url.get_secret_value():
            yield POSTGRES
        if found.usage.kafka.brokers:
            yield KAFKA
