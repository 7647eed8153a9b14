"""What scalers do with the series that a cluster has."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from baton.autoscaling.hpa import desired_replicas
from bench.harness.promql.evaluate import PromQLError, evaluate
from bench.harness.promql.series import SeriesStore
from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import Pod, Rendered, title

NOW = 1_000.0
SCRAPES = range(0, 1_001, 15)
NEEDED = {"prefill": 7, "decode": 5, "combined": 12}
"""Replicas that the pools of a scaler's own model need."""
OTHERS = 40
"""Replicas that each pool of another model needs."""
OPEN_REQUESTS = 1_600.0
"""At all frontends together."""
LINES = 1_400.0
"""Of batches, which every frontend counts."""
_ANY_MODEL = ".*"


@rule
def scalers_follow_the_need(rendered: Rendered) -> Iterator[str]:
    """Of their own pool, although nothing waits at workers: requests wait in routers."""
    for one, pod, queries in _scalers(rendered):
        if pod.role not in NEEDED:
            continue
        for replicas in (2, 4, 12):
            found = [_desired(query, series_of(rendered, pod), replicas) for query in queries]
            wanted = NEEDED[pod.role]
            if found != [wanted]:
                yield f"{title(one)} sets {found} for {replicas} pods, which need {wanted}"


@rule
def scalers_ignore_silent_routers(rendered: Rendered) -> Iterator[str]:
    """A router that is gone counts for 30 s; without any router there is no decision."""
    for one, pod, queries in _scalers(rendered):
        if pod.role not in NEEDED:
            continue
        series = series_of(rendered, pod, until=NOW - 31)
        for query in queries:
            if "baton_needed_replicas" not in query.get("query", ""):
                continue  # another rule says so
            if value := _evaluated(query, series):
                yield f"{title(one)} follows routers of 31 s ago: {value}"


@rule
def scalers_keep_pods_without_metrics(rendered: Rendered) -> Iterator[str]:
    """KEDA takes an empty result as 0, unless told otherwise."""
    for one in rendered.of("ScaledObject"):
        behavior = one["spec"].get("fallback", {}).get("behavior", "static")
        if behavior not in ("currentReplicas", "currentReplicasIfHigher"):
            yield f"{title(one)} sets a number of pods without metrics: {behavior}"
        for trigger in one["spec"].get("triggers", []):
            if trigger["metadata"].get("ignoreNullValues", "true") != "false":
                yield f"{title(one)} takes no series as 0"


@rule
def frontends_follow_requests_and_lines(rendered: Rendered) -> Iterator[str]:
    for one, pod, queries in _scalers(rendered):
        if pod.role == "frontend":
            found = [_desired(query, series_of(rendered, pod), 2) for query in queries]
            if len(found) != 2 or not all(isinstance(n, int) and 3 <= n <= 8 for n in found):
                yield (
                    f"{title(one)} sets {found} for {OPEN_REQUESTS:.0f} open requests and "
                    f"{LINES:.0f} lines"
                )


@rule
def pools_at_zero_come_back(rendered: Rendered) -> Iterator[str]:
    """A pool may have no pods if routers say so, and if its model stays known."""
    routers = [one.environment for one in rendered.containers if one.process == "router"]
    for one, pod, queries in _scalers(rendered):
        spec = one["spec"]
        if spec.get("minReplicaCount", 0) and "idleReplicaCount" not in spec:
            continue
        if pod.role not in NEEDED:
            yield f"{title(one)} may have no pods"
            continue
        if not all(float(env.get("BATON_SCALING_IDLE_SECONDS", 0)) for env in routers):
            yield f"{title(one)} goes to 0, and routers never say so"
        workers = [c.environment for c in pod.baton if not c.init]
        if not all(int(env.get("BATON_CLUSTER_MODEL_KEEP_SECONDS", 0)) for env in workers):
            yield f"{title(one)} goes to 0, and its model is forgotten"
        if spec.get("fallback", {}).get("replicas") != 0:
            yield f"{title(one)} starts pods when there are no metrics"
        for query in queries:
            least = float(query.get("activationThreshold", 0))
            for needed in (0, 1):
                value = _evaluated(query, series_of(rendered, pod, needed=needed))
                active = isinstance(value, dict) and any(n > least for n in value.values())
                if active != bool(needed):
                    yield f"{title(one)} is {'not ' * (not active)}active for a need of {needed}"


def _scalers(rendered: Rendered) -> Iterator[tuple[Any, Pod, Sequence[str]]]:
    """Yield each scaler, its pods and its queries."""
    for one in rendered.of("ScaledObject"):
        target = one["spec"].get("scaleTargetRef", {}).get("name", "")
        queries = [trigger["metadata"] for trigger in one["spec"].get("triggers", [])]
        yield from ((one, pod, queries) for pod in rendered.pods if pod.name == target)


def _desired(trigger: Any, series: SeriesStore, replicas: int) -> int | str:
    """Return what an HPA sets; a sentence if the query gives it nothing to follow."""
    value = _evaluated(trigger, series)
    if not isinstance(value, dict) or len(value) != 1:
        return f"{len(value)} series" if isinstance(value, dict) else str(value)
    (number,) = value.values()
    return desired_replicas(number, float(trigger["threshold"]), replicas, 1, 1_000)


def _evaluated(query: Any, series: SeriesStore) -> Any:
    text = query if isinstance(query, str) else query.get("query", "")
    try:
        return evaluate(text, series, NOW)
    except PromQLError as error:
        return str(error)


def series_of(
    rendered: Rendered, pod: Pod, until: float = NOW, needed: int | None = None
) -> SeriesStore:
    """Return what Prometheus has of a cluster: the pools of `pod`'s model, and others.

    Args:
        rendered: the cluster's objects.
        pod: whose model it is about.
        until: time of the last scrape.
        needed: by all pools of the model; None: NEEDED.
    """
    own = _model(pod)
    others = {_model(one) for one in rendered.pods if one.role in NEEDED} - {own, _ANY_MODEL}
    if own != _ANY_MODEL:
        others.add("another-model")
    name = "some-model" if own == _ANY_MODEL else own
    return _series(_namespace(rendered), name, frozenset(others), until, needed)


@cache
def _series(
    here: str, name: str, others: frozenset[str], until: float, needed: int | None
) -> SeriesStore:
    """Return what `series_of` does; whoever has it only reads it."""
    store = SeriesStore()
    there = "elsewhere"
    for at in map(float, SCRAPES):
        if at > until:
            continue
        for role, usual in NEEDED.items():
            add, need = store.add, usual if needed is None else needed
            metric = "baton_needed_replicas"
            # One router has just started; another one stopped a minute ago.
            for router, seen in (("router-0", need), ("router-1", min(1, need)), ("router-2", 99)):
                if router != "router-2" or at <= NOW - 60:
                    add(metric, at, seen, namespace=here, pod=router, role=role, model=name)
            add(metric, at, 99, namespace=there, pod="router-0", role=role, model=name)
            for other in others:
                add(metric, at, OTHERS, namespace=here, pod="router-0", role=role, model=other)
        for number in range(2):
            place = {"namespace": here, "pod": f"frontend-{number}"}
            store.add("baton_frontend_requests_active", at, OPEN_REQUESTS / 2, **place)
            store.add("baton_batch_lines_unfinished", at, LINES, **place)
        for name_of_pod in ("prefill-0", "prefill-1", "decode-0"):
            role = name_of_pod.partition("-")[0]
            place = {"namespace": here, "pod": name_of_pod, "app_kubernetes_io_name": role}
            store.add("vllm:num_requests_waiting", at, 0, model_name=name, **place)
            store.add("vllm:num_requests_running", at, 2, model_name=name, **place)
    return store


def _namespace(rendered: Rendered) -> str:
    return next((str(one["metadata"]["name"]) for one in rendered.of("Namespace")), "baton")


def _model(pod: Pod) -> str:
    """Return SCALED_MODEL of a pod's pool."""
    found = (c.environment.get("SCALED_MODEL") for c in pod.baton if not c.init)
    return next((one for one in found if one), _ANY_MODEL)
