"""The laptop overlay as it is: its pods come up, answer what README asks, and say how they are."""

import json
import time

import pytest

from baton.client import AsyncClient
from bench.faults.http_client import HttpConnection
from bench.harness import ROOT
from tests.k8s.manifests.render import render
from tests.k8s.pods.cluster import Cluster
from tests.k8s.pods.objects.manifests import Manifests

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(900)]
UP_SECONDS = 480
WHOLE_SECONDS = 600
MODEL = "baton-tiny"
WITHOUT_PRIVILEGES = """
import json, os, pathlib
status = dict(line.split(":\\t", 1) for line in pathlib.Path("/proc/self/status").open())
keys = ("Uid", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
try:
    pathlib.Path("/opt/baton/x").touch()
    written = "written"
except OSError as error:
    written = error.strerror
print(json.dumps({**{key: status[key].split()[0] for key in keys}, "root": written}))
"""


@pytest.fixture(scope="module")
async def cluster(machine, tmp_path_factory, baton_images):
    manifests = Manifests(render(ROOT / "k8s" / "overlays" / "laptop"))
    directory = tmp_path_factory.mktemp("laptop")
    began = time.monotonic()
    async with Cluster(manifests, directory, images=baton_images) as cluster:
        await cluster.wait_rolled_out(seconds=UP_SECONDS)
        await cluster.wait_endpoints()
        yield cluster
    assert time.monotonic() - began < WHOLE_SECONDS


async def test_readme_is_answered_over_http(cluster):
    host, port = cluster.address("frontend", 80).split(":")
    async with HttpConnection(host, int(port)) as connection:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
        answer = await connection.ask("/v1/chat/completions", body)
    assert answer.texts[0]
    assert answer.output_tokens > 0


async def test_readme_is_answered_over_grpc(cluster):
    async with AsyncClient(cluster.address("frontend", 50051), timeout=60) as client:
        answer = await client.chat("Hello", model=MODEL).answer()
    assert answer.text


async def test_every_container_is_without_privileges(cluster):
    for pod in cluster.pods:
        for name, runner in pod.runners.items():
            if name == "etcd":  # which has no Python
                continue
            code, said = await cluster.execute(pod, name, "python", "-c", WITHOUT_PRIVILEGES)
            assert code == 0, said
            found = json.loads(said)
            assert (found["Uid"], found["NoNewPrivs"], found["Seccomp"]) == ("65532", "1", "2")
            assert int(found["CapEff"], 16) == int(found["CapBnd"], 16) == 0
            assert found["root"] == "Read-only file system"
            assert runner.restarts == 0, pod.events


async def test_status_in_a_pod(cluster):
    (frontend,) = cluster.of("deployment/frontend")
    code, said = await cluster.execute(frontend, "frontend", "baton", "status", "--json")
    assert code == 0, said
    rows = {row["id"]: row for row in json.loads(said)}
    workers = {
        pod.name for name in ("prefill", "decode") for pod in cluster.of(f"deployment/{name}")
    }
    assert rows.keys() >= {frontend.name, *workers, *(f"{name}-kv" for name in workers)}
    assert {row["health"] for row in rows.values()} == {"SERVING"}
