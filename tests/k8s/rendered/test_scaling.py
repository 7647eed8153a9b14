"""The alert on queues, and the series that rules give to scalers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.harness.promql.evaluate import evaluate
from bench.harness.promql.series import SeriesStore
from tests.k8s.manifests.render import K8S, rendering
from tests.k8s.manifests.rules.scaling import NOW, SCRAPES, series_of
from tests.k8s.manifests.view import Rendered

pytestmark = pytest.mark.xdist_group("manifests")

DOCS = K8S.parent / "docs"
AT_WORKERS = """\
sum by (model_name) (vllm:num_requests_waiting)
  / sum by (model_name) (vllm:num_requests_running > 0) > 0.5
"""
"""What does not notice requests that wait in routers."""


def alert() -> Any:
    groups = yaml.safe_load((DOCS / "alerts.yaml").read_text())["groups"]
    return next(one for one in groups[0]["rules"] if one["alert"] == "BatonQueue")


def queues() -> SeriesStore:
    """Return series of two routers: one of three queues is never empty."""
    store = SeriesStore()
    name = "baton_router_queue_length"
    for at in map(float, SCRAPES):
        for router, waiting in (("router-0", 3), ("router-1", int(at) % 2)):
            place = {"pod": router, "model": "busy"}
            store.add(name, at, waiting, **place, **{"class": "interactive"})
            store.add(name, at, 0, **place, **{"class": "batch"})
        burst = 50 if at % 60 == 0 else 0
        store.add(name, at, burst, **{"pod": "router-0", "model": "bursts", "class": "interactive"})
        store.add("vllm:num_requests_waiting", at, 0, pod="prefill-0", model_name="busy")
        store.add("vllm:num_requests_running", at, 4, pod="prefill-0", model_name="busy")
    return store


def test_the_alert_on_queues_names_model_and_class() -> None:
    fired = evaluate(alert()["expr"], queues(), NOW)
    busy = frozenset({("model", "busy"), ("class", "interactive")})
    assert fired == {busy: 3.0}
    assert not evaluate(AT_WORKERS, queues(), NOW)
    text = " ".join(alert()["annotations"].values())
    assert "$labels.model " in text
    assert "$labels.class " in text


def scaled() -> SeriesStore:
    rendered = Rendered(rendering("components/autoscaling"))
    return series_of(rendered, next(pod for pod in rendered.pods if pod.role == "decode"))


@pytest.mark.parametrize("make", [queues, scaled], ids=["queues", "scalers"])
def test_series_are_of_metrics_there_are(make: Any) -> None:
    known = Path(DOCS / "metrics.md").read_text()
    assert [name for name in make().names if f"`{name}`" not in known] == []
