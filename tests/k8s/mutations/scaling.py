"""Mistakes in scalers."""

from tests.k8s.mutations.mutation import Mutation

_SCALED, _ZERO = "components/autoscaling", "components/scale-to-zero"
_QUERY = "spec.triggers.0.metadata.query"


def _need(role: str, seconds: str = "30s", model: str = '=~".*"', namespace: str = "baton") -> str:
    matchers = f'namespace="{namespace}",role="{role}",model{model}'
    selected = f"baton_needed_replicas{{{matchers}}}"
    return f"max by (role, model) (last_over_time({selected}[{seconds}]))"


def _query(rule: str, query: str, role: str = "decode") -> Mutation:
    return Mutation(rule, f"ScaledObject/{role}", _QUERY, query, _SCALED)


SCALING = (
    # Requests at workers: those that wait are in routers.
    _query(
        "scalers_follow_the_need",
        'sum(vllm:num_requests_waiting{namespace="baton"}) + '
        'sum(vllm:num_requests_running{namespace="baton"})',
        "prefill",
    ),
    _query("scalers_follow_the_need", _need("prefill")),
    _query("scalers_follow_the_need", _need("decode", namespace="elsewhere")),
    _query("scalers_follow_the_need", _need("decode", namespace="nowhere")),
    _query("scalers_follow_the_need", _need("decode").replace("max", "min", 1)),
    _query("scalers_follow_the_need", _need("decode").replace("max", "sum", 1)),
    _query("scalers_follow_the_need", f"{_need('decode')} / 2"),
    Mutation("scalers_follow_the_need", "ConfigMap/model", "data.SCALED_MODEL", "one", _SCALED),
    Mutation(
        "scalers_follow_the_need",
        "ScaledObject/prefill",
        "spec.triggers.0.metadata.threshold",
        "2",
        _SCALED,
    ),
    _query("scalers_ignore_silent_routers", _need("decode", "45s")),
    Mutation(
        "scalers_keep_pods_without_metrics",
        "ScaledObject/decode",
        "spec.triggers.0.metadata.ignoreNullValues",
        rendering=_SCALED,
    ),
    Mutation(
        "scalers_keep_pods_without_metrics",
        "ScaledObject/prefill",
        "spec.fallback.behavior",
        "static",
        _SCALED,
    ),
    _query(
        "frontends_follow_requests_and_lines",
        'avg(baton_frontend_requests_active{namespace="baton"}) / 10',
        "frontend",
    ),
    # Each frontend counts the lines of all.
    Mutation(
        "frontends_follow_requests_and_lines",
        "ScaledObject/frontend",
        "spec.triggers.1.metadata.query",
        'sum(baton_batch_lines_unfinished{namespace="baton"})',
        _SCALED,
    ),
    *(
        Mutation("pools_at_zero_come_back", target, path, value, _ZERO)
        for target, path, value in (
            ("ScaledObject/decode", "spec.fallback.replicas", 2),
            ("ScaledObject/decode", "spec.triggers.0.metadata.activationThreshold", "1"),
            ("ScaledObject/frontend", "spec.minReplicaCount", 0),
            ("ConfigMap/model", "data.BATON_CLUSTER_MODEL_KEEP_SECONDS", "0"),
            (
                "Deployment/router",
                "spec.template.spec.containers.0.env.BATON_SCALING_IDLE_SECONDS.value",
                "0",
            ),
        )
    ),
    Mutation("pools_at_zero_come_back", "ScaledObject/prefill", "spec.minReplicaCount", 0, _SCALED),
)
