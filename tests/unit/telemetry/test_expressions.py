"""What alerts, the dashboard and scalers ask Prometheus for exists: metrics, labels and values."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from baton.errors import Reason

ROOT = Path(__file__).resolve().parents[3]
K8S = ROOT / "k8s" / "components"
DASHBOARD = json.loads((K8S / "monitoring" / "dashboard.json").read_text())
SCRAPED = {"namespace", "pod", "instance", "app_kubernetes_io_name"}
"""Labels that a PodMonitor gives every series."""
SUFFIXES = {"counter": [""], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
FAMILY = re.compile(r"^\| `([\w:]+)` \| (\w+) \| (.*?) \|", re.MULTILINE)
SERIES = re.compile(r"\b((?:baton|gen_ai|vllm|etcd)[\w:]+)(?:\{(.*?)\})?")
GROUPING = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')


def families() -> dict[str, set[str]]:
    """Labels by series, of all that docs/metrics.md lists: it is written from the registries."""
    found: dict[str, set[str]] = {}
    for name, kind, labels in FAMILY.findall((ROOT / "docs" / "metrics.md").read_text()):
        for suffix in SUFFIXES[kind]:
            own = set(re.findall(r"`(\w+)`", labels))
            found[name + suffix] = own | ({"le"} if suffix == "_bucket" else set())
    return found


OF_ETCD: dict[str, set[str]] = {
    "etcd_mvcc_db_total_size_in_bytes": set(),
    "etcd_server_quota_backend_bytes": set(),
}
"""Of etcd's own port; tests/integration/cluster/test_no_space.py reads them."""
KNOWN = families() | OF_ETCD


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str, str]]:
    """Where each stands, the expression, and text that names its labels."""
    (group,) = yaml.safe_load((ROOT / "docs" / "alerts.yaml").read_text())["groups"]
    for alert in group["rules"]:
        said = " ".join(alert["annotations"].values())
        labels = " ".join(f"{{{{{name}}}}}" for name in re.findall(r"\$labels\.(\w+)", said))
        yield alert["alert"], alert["expr"], labels
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for scaler in yaml.safe_load_all((K8S / "autoscaling" / "scalers.yaml").read_text()):
        for trigger in scaler["spec"]["triggers"]:
            if query := trigger["metadata"].get("query"):
                yield scaler["metadata"]["name"], query, ""


@pytest.mark.parametrize(("expression", "legend"), [each[1:] for each in expressions()])
def test_expressions_ask_for_what_there_is(expression: str, legend: str) -> None:
    series = SERIES.findall(expression)
    assert series
    for name, matchers in series:
        assert name in KNOWN
        for label, value in MATCHER.findall(matchers):
            assert label in KNOWN[name] | SCRAPED
            if (name, label) == ("baton_frontend_requests_total", "reason"):
                assert set(value.split("|")) <= {reason.name for reason in Reason} | {"ok"}
    grouped = {label.strip() for some in GROUPING.findall(expression) for label in some.split(",")}
    for label in grouped:
        assert all(label in KNOWN[name] | SCRAPED for name, _ in series)
    assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= grouped


def test_the_dashboard_is_one_that_grafana_shows() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$(?!__)\{?(\w+)", json.dumps(panels()))) == variables
    places = set()
    for panel in panels():
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        places.add((place["x"], place["y"]))
        refs = [target["refId"] for target in panel["targets"]]
        assert len(refs) == len(set(refs))
    assert len(places) == len(panels())
