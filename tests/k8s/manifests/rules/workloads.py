"""Workloads: whose pods are whose, how they roll, how many there are."""

from collections.abc import Iterator

from tests.k8s.manifests.quantity import count_or_share
from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.selectors import matches
from tests.k8s.manifests.view import JOBS, Pod, Rendered, name_of, title

REPLICATED = ("etcd", "router", "frontend", "prefill", "decode", "picker")
SPREAD = ("kubernetes.io/hostname", "topology.kubernetes.io/zone")
PROGRESS_SECONDS = 600  # what a Deployment has where it does not say


@rule
def selectors_choose_their_own_pods(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        if pod.workload["kind"] in JOBS:
            continue  # the API server gives it a selector of its own
        selector = pod.workload["spec"].get("selector")
        if not selector or not matches(selector, pod.labels):
            yield f"{pod.name} does not select its own pods"
        for other in rendered.selected(selector):
            if other.workload is not pod.workload:
                yield f"{pod.name} selects the pods of {other.name}"


@rule
def rollouts_lose_nobody(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        spec = pod.workload["spec"]
        kind = pod.workload["kind"]
        if kind in JOBS:
            continue
        strategy = spec.get("strategy" if kind == "Deployment" else "updateStrategy", {})
        rolling = strategy.get("rollingUpdate", {})
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            yield f"{pod.name} has the strategy {strategy['type']}"
            continue
        try:
            least, most = ("25%", "25%") if kind == "Deployment" else (1, 0)
            lost = count_or_share(rolling.get("maxUnavailable", least), pod.replicas, up=False)
            more = count_or_share(rolling.get("maxSurge", most), pod.replicas, up=True)
        except ValueError as error:
            yield f"{pod.name}: {error}"
            continue
        devices = list(_devices(pod))
        if kind == "Deployment" and devices and (more or not 0 < lost < max(2, pod.replicas)):
            yield f"{pod.name} starts {more} pods first, and needs {devices[0]} of {lost} old ones"
        if kind == "Deployment" and not devices and (lost, more >= 1) != (0, True):
            yield f"{pod.name} takes {lost} pods away before new ones are ready, of {more} more"
        if kind == "DaemonSet" and (lost == 0) == (more == 0):
            yield f"{pod.name} has {lost} unavailable and {more} more"
        if kind == "StatefulSet" and rolling.get("partition", 0):
            yield f"{pod.name} leaves pods of the old version"
        if spec.get("paused"):
            yield f"{pod.name} does not roll"
        if spec.get("minReadySeconds", 0) >= spec.get("progressDeadlineSeconds", PROGRESS_SECONDS):
            yield f"{pod.name} has failed before its pods are available"


def _devices(pod: Pod) -> Iterator[str]:
    """Yield what a node has a number of and a new pod waits for: extended resources, and claims."""
    for container in pod.containers:
        resources = container.spec.get("resources", {})
        yield from (name for name in resources.get("limits", {}) if "/" in name)
    yield from (f"claim {one['name']}" for one in pod.spec.get("resourceClaims", []))


@rule
def there_are_several(rendered: Rendered) -> Iterator[str]:
    scaled = {name_of(one) for one in rendered.of("ScaledObject")}
    for pod in rendered.pods:
        if pod.role in REPLICATED and pod.name not in scaled and pod.replicas < 2:
            yield f"{pod.name} has {pod.replicas} pods"
        if pod.name == "etcd" and pod.replicas % 2 == 0:
            yield f"{pod.replicas} members of etcd bear no more than {pod.replicas - 1}"


@rule
def pods_spread(rendered: Rendered) -> Iterator[str]:
    for pod in rendered.pods:
        spread = pod.spec.get("topologySpreadConstraints", [])
        keys = [one.get("topologyKey") for one in spread]
        if pod.role in REPLICATED and keys != list(SPREAD):
            yield f"{pod.name} spreads over {keys}"
        for one in spread:
            if not matches(one.get("labelSelector"), pod.labels):
                yield f"{pod.name} spreads away from others than its own pods"
            if set(one.get("matchLabelKeys", [])) & set(
                one.get("labelSelector", {}).get("matchLabels", {})
            ):
                yield f"{pod.name} compares a label twice"
            if "minDomains" in one and one.get("whenUnsatisfiable") != "DoNotSchedule":
                yield f"{pod.name} has minDomains without DoNotSchedule"


@rule
def budgets_let_nodes_drain(rendered: Rendered) -> Iterator[str]:
    covered: set[str] = set()
    for budget in rendered.of("PodDisruptionBudget"):
        spec = budget["spec"]
        pods = rendered.selected(spec.get("selector"))
        covered |= {pod.name for pod in pods}
        if len(pods) != 1:
            yield f"{title(budget)} is for the pods of {[pod.name for pod in pods]}"
            continue
        bounds = {"minAvailable", "maxUnavailable"} & set(spec)
        if len(bounds) != 1:
            yield f"{title(budget)} has {len(bounds)} bounds"
        elif not _may_go(spec, pods[0]):
            yield f"{title(budget)} lets no pod go, or all at once"
    for pod in rendered.pods:
        if pod.role in REPLICATED and pod.name not in covered:
            yield f"{pod.name} has no budget"


def _may_go(spec: dict[str, object], pod: Pod) -> bool:
    try:
        if "maxUnavailable" in spec:
            gone = count_or_share(spec["maxUnavailable"], pod.replicas, up=True)
        else:
            gone = pod.replicas - count_or_share(spec["minAvailable"], pod.replicas, up=True)
        return 0 < gone < max(2, pod.replicas)
    except ValueError:
        return False


@rule
def sets_have_their_service(rendered: Rendered) -> Iterator[str]:
    for one in rendered.of("StatefulSet"):
        service = rendered.named("Service", one["spec"].get("serviceName", ""))
        labels = one["spec"]["template"]["metadata"].get("labels", {})
        if service is None or service["spec"].get("clusterIP") != "None":
            yield f"{title(one)} has no headless Service: its pods have no names"
        elif not matches({"matchLabels": service["spec"].get("selector", {})}, labels):
            yield f"{title(one)}: its Service is for others"


@rule
def scalers_have_their_bounds(rendered: Rendered) -> Iterator[str]:
    for one in rendered.of("HorizontalPodAutoscaler", "ScaledObject"):
        spec = one["spec"]
        target = spec.get("scaleTargetRef", {})
        workload = rendered.named(target.get("kind", "Deployment"), target.get("name", ""))
        least = spec.get("minReplicas", spec.get("minReplicaCount", 0))
        most = spec.get("maxReplicas", spec.get("maxReplicaCount", 100))
        if not 0 <= least <= most:  # another rule says when it may be 0
            yield f"{title(one)} keeps between {least} and {most} pods"
        if workload is None:
            yield f"{title(one)} scales {target.get('name')}, which is not there"
        elif "replicas" in workload["spec"]:
            yield f"{title(workload)} has a number of its own beside its scaler's"
