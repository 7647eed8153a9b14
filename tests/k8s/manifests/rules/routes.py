"""What gateways and Prometheus are told."""

from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.k8s.manifests.rules.registry import rule
from tests.k8s.manifests.view import Rendered, title

ALERTS = Path(__file__).resolve().parents[4] / "docs/alerts.yaml"
BACKENDS = {"HTTPRoute": "http", "GRPCRoute": "grpc"}


@rule
def routes_lead_to_services(rendered: Rendered) -> Iterator[str]:
    for kind, name in BACKENDS.items():
        for route in rendered.of(kind):
            for one in route["spec"]["rules"]:
                for backend in one.get("backendRefs", []):
                    if backend.get("kind") == "InferencePool":
                        if rendered.named("InferencePool", backend["name"]) is None:
                            yield f"{title(route)} leads to no pool {backend['name']}"
                        continue
                    service = rendered.named("Service", backend.get("name", ""))
                    ports = service["spec"]["ports"] if service else []
                    if (name, backend.get("port")) not in [(p["name"], p["port"]) for p in ports]:
                        yield f"{title(route)} leads to {backend.get('name')}:{backend.get('port')}"


@rule
def pools_have_pods_and_a_picker(rendered: Rendered) -> Iterator[str]:
    for pool in rendered.of("InferencePool"):
        spec = pool["spec"]
        chosen = rendered.selected(spec["selector"])
        if [pod.role for pod in chosen] != ["frontend"]:
            yield f"{title(pool)} is of the pods of {[pod.name for pod in chosen]}"
        numbers = {
            port["containerPort"] for pod in chosen for c in pod.containers for port in c.ports
        }
        for port in spec["targetPorts"]:
            if port["number"] not in numbers:
                yield f"{title(pool)}: nobody listens on {port['number']}"
        picker = spec["endpointPickerRef"]
        service = rendered.named("Service", picker["name"])
        ports = service["spec"]["ports"] if service else []
        if picker["port"]["number"] not in [port["port"] for port in ports]:
            yield f"{title(pool)} asks {picker['name']}:{picker['port']['number']}, which is nobody"


@rule
def monitors_scrape_all_pods(rendered: Rendered) -> Iterator[str]:
    for monitor in rendered.of("PodMonitor"):
        spec = monitor["spec"]
        chosen = {pod.name for pod in rendered.selected(spec.get("selector"))}
        named = {endpoint.get("port") for endpoint in spec.get("podMetricsEndpoints", [])}
        for pod in rendered.pods:
            ports = {
                port["name"]
                for container in pod.containers
                for port in container.ports
                if port["name"].endswith("ops")
            }
            if ports and (pod.name not in chosen or not ports <= named):
                yield f"{title(monitor)} does not scrape {pod.name}"
        for name in named:
            if not any(name == p["name"] for c in rendered.containers for p in c.ports):
                yield f"{title(monitor)} scrapes {name}, which nobody has"


@rule
def alerts_are_those_of_the_docs(rendered: Rendered) -> Iterator[str]:
    for one in rendered.of("PrometheusRule"):
        if one["spec"] != yaml.safe_load(ALERTS.read_text()):
            yield f"{title(one)} is not what docs/alerts.yaml says"
