"""What processes of the version before are given, by benchmarks and in pods."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.faults.setup import COUNTS, DTYPE, cluster_settings
from bench.harness import ROOT
from bench.harness.fleet import SERVICES, Fleet
from bench.harness.releases import CHECKOUT, Release
from bench.serving.rolling import FRONTEND_SETTINGS, SETTINGS
from tests.k8s.manifests.render import OVERLAYS, render
from tests.k8s.pods.objects.environment import PodFacts, environment
from tests.k8s.pods.objects.manifests import Manifests
from tests.k8s.releases import template_of
from tests.support.processes.launcher import Launcher

pytestmark = [pytest.mark.xdist_group("versions"), pytest.mark.timeout(300)]

READ = """
import json, os, sys
from baton.settings.load import load_with_sources
from baton.settings.processes import SERVICE_SETTINGS
role = sys.argv[1]
settings = load_with_sources(SERVICE_SETTINGS[role], (), role, os.environ).settings
print(settings.model_dump_json())
"""
POD = PodFacts("pod-0", "baton", "u", "10.0.0.2", "a", "10.0.0.1")
IMAGE = "baton:released"


async def settings_of(launcher: Launcher, role: str, variables: Mapping[str, str]) -> Any:
    """Return the settings that a process of the launcher's version reads out of variables."""
    given = {"PATH": os.environ["PATH"], **variables}
    code, out, err = await launcher.run(["-c", READ, role], given)
    assert code == 0, err
    return json.loads(out)


def test_a_setting_that_a_version_does_not_have_is_left_out() -> None:
    given = {"BATON_OLD": "1", "BATON_NEW": "2", "OMP_NUM_THREADS": "3"}
    older = Release("older", (ROOT,), {"BATON_OLD": "BATON_OLDER"}, frozenset({"BATON_OLDER"}))
    assert older.settings(given) == {"BATON_OLDER": "1", "OMP_NUM_THREADS": "3"}
    assert CHECKOUT.settings(given) == given
    older = Release("older", (ROOT,), processes=frozenset({"router"}))
    assert [one.runs("router") for one in (older, CHECKOUT)] == [True, True]
    assert [one.runs("picker") for one in (older, CHECKOUT)] == [False, True]


async def test_processes_of_a_fleet(
    releases: Mapping[str, Release], launchers: Mapping[str, Launcher], tmp_path: Path
) -> None:
    etcd: Any = SimpleNamespace(endpoints=("127.0.0.1:2379",))
    settings = {**cluster_settings("sim", DTYPE), **SETTINGS, "BATON_DRAIN_SECONDS": "7"}
    fleet = Fleet(tmp_path, etcd, settings, COUNTS, {})
    try:
        for service in SERVICES:
            member = fleet[f"{service}-0"]
            given = {**member.settings, **(FRONTEND_SETTINGS if service == "frontend" else {})}
            taken = releases["released"].settings(given)
            found = await settings_of(launchers["released"], service, taken)
            assert found["instance_id"] == member.id
            assert found["grpc"]["port"] == member.grpc_port
            assert found["telemetry"]["metrics_port"] == member.ops_port
            assert found["drain_seconds"] == float(given["BATON_DRAIN_SECONDS"])
    finally:
        await fleet.stop()


async def test_containers_of_pods(
    releases: Mapping[str, Release], launchers: Mapping[str, Launcher]
) -> None:
    manifests = Manifests(render(OVERLAYS / "rolling"))
    roles = set()
    for one in manifests.of("Deployment"):
        spec = template_of(one["spec"]["template"], IMAGE, releases["released"])["spec"]
        for container in (*spec.get("initContainers", ()), *spec["containers"]):
            assert container["image"] == IMAGE
            role = container["args"][-1]
            roles.add(role)
            variables = environment(container, POD, manifests.data())
            found = await settings_of(launchers["released"], role, variables)
            ports = {port["containerPort"] for port in container["ports"]}
            assert {found["grpc"]["port"], found["telemetry"]["metrics_port"]} <= ports
            assert found["telemetry"]["metrics_host"] == found["grpc"]["host"] == "0.0.0.0"
            assert found["etcd"]["endpoints"] == ["etcd:2379"], "several are addresses there"
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert container[probe]["grpc"]["port"] == found["grpc"]["port"]
                assert "httpGet" not in container[probe]
    assert roles == set(SERVICES)
