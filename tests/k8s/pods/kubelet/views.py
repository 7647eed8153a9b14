"""Pods as others see them: Services, disruption budgets, and whoever looks for what went wrong."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.k8s.pods.controllers.disruption import Candidate
from tests.k8s.pods.kubelet.pod import Pod
from tests.k8s.pods.services.endpoints import Backend

LAST_EVENTS = LAST_LINES = 8
LINE_CHARACTERS = 300


def backend(pod: Pod) -> Backend:
    """Return a pod as Services see it."""
    spec: Mapping[str, Any] = pod.identity.spec
    ports = {
        port["name"]: port["containerPort"]
        for container in (*spec.get("initContainers", ()), *spec["containers"])
        for port in container.get("ports", ())
        if "name" in port
    }
    host, domain = spec.get("hostname", ""), spec.get("subdomain", "")
    identity = pod.identity
    return Backend(
        pod.name, pod.address, identity.labels, ports, pod.ready, pod.terminating, host, domain
    )


def candidate(pod: Pod) -> Candidate:
    """Return a pod as disruption budgets see it."""
    return Candidate(pod.name, pod.identity.labels, pod.ready, pod.terminating)


def describe(pods: Sequence[Pod]) -> str:
    """Return what happened to each pod, and the end of the logs of those not ready."""
    lines = []
    for pod in pods:
        state = "ready" if pod.ready else pod.phase
        lines.append(f"{pod.name} on {pod.identity.node} {pod.address}: {state}")
        lines += [f"    {event}" for event in pod.events[-LAST_EVENTS:]]
        if not pod.ready:
            for log in sorted(pod.logs.glob("*.log")):
                said = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
                lines += [f"    {log.stem} | {line[:LINE_CHARACTERS]}" for line in said]
    return "\n".join(lines)
