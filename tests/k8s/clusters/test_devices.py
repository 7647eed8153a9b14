"""Pods that want a device each, on nodes whose devices are all taken: which rollouts end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.k8s.clusters.load import load_on, running
from tests.k8s.clusters.test_pods import get
from tests.k8s.clusters.test_rolling import ETCD, ROLL_SECONDS, STREAMS
from tests.k8s.manifests.render import OVERLAYS, render
from tests.k8s.pods.cluster import Cluster
from tests.k8s.pods.controllers.nodes import Node
from tests.k8s.pods.objects.manifests import Manifests

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(1800)]
WEB = "deployment/web"
WORKERS = ("deployment/prefill", "deployment/decode")
UP_SECONDS = 300
WAITS_SECONDS = 15
DEVICES = OVERLAYS / "devices"
LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
ONE = {"nvidia.com/gpu": 1}
WITH_ONE = tuple(Node(f"gpu-{letter}", LABELS, ONE) for letter in "abcd")
OTHER = Node("other", {}, ONE)


@asynccontextmanager
async def asking(address: str) -> AsyncIterator[list[str]]:
    """Ask again and again in the block; the list is of failures."""
    failed: list[str] = []
    asked = 0

    async def ask() -> None:
        nonlocal asked
        while True:
            try:
                await get(address, "/name")
            except OSError as error:
                failed.append(str(error))
            asked += 1
            await asyncio.sleep(0.05)

    task = asyncio.create_task(ask())
    try:
        yield failed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert asked > 0


async def test_a_rollout_ends_where_every_device_is_taken(small_image, tmp_path):
    manifests = Manifests(render(DEVICES))
    images = {"small": small_image}
    async with Cluster(manifests, tmp_path, images=images, nodes=(*WITH_ONE[:2], OTHER)) as cluster:
        await cluster.wait_rolled_out(seconds=UP_SECONDS)
        await cluster.wait_endpoints()
        before = {pod.name for pod in cluster.of(WEB)}
        assert {pod.identity.node for pod in cluster.of(WEB)} == {"gpu-a", "gpu-b"}
        async with asking(cluster.address("web", 80)) as failed:
            await _assert_waits_for_ever(cluster, before)
            cluster.workloads[WEB].spec["strategy"] = _web(manifests)["spec"]["strategy"]
            await cluster.wait_rolled_out(WEB, seconds=UP_SECONDS)
        assert not failed
        assert not before & {pod.name for pod in cluster.of(WEB)}
        assert {pod.identity.node for pod in cluster.of(WEB)} == {"gpu-a", "gpu-b"}


async def test_workers_hand_their_gpus_over(machine, tmp_path, baton_images):
    manifests = Manifests(render(DEVICES.with_name("gpus")))
    images = {**ETCD, **baton_images}
    nodes = (*WITH_ONE, OTHER)
    async with Cluster(manifests, tmp_path, images=images, nodes=nodes) as cluster:
        await cluster.wait_rolled_out(seconds=2 * UP_SECONDS)
        await cluster.wait_endpoints()
        load = await load_on(cluster, STREAMS)
        before = {pod.name for role in WORKERS for pod in cluster.of(role)}
        async with running(load):
            for role in WORKERS:
                cluster.restart(role)
            seconds = await cluster.wait_rolled_out(*WORKERS, seconds=ROLL_SECONDS)
            print(f"workers replaced in {seconds:.0f} s")
        after = [pod for role in WORKERS for pod in cluster.of(role)]
        assert {pod.identity.node for pod in after} == {node.name for node in WITH_ONE}
        assert not before & {pod.name for pod in after}


async def _assert_waits_for_ever(cluster, before):
    """A rollout that adds a pod first does nothing, since no node has a device for that pod."""
    adds_first = {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    cluster.workloads[WEB].spec["strategy"] = adds_first
    cluster.restart(WEB)
    with pytest.raises(TimeoutError):
        await cluster.wait_rolled_out(WEB, seconds=WAITS_SECONDS)
    assert {pod.name for pod in cluster.of(WEB)} == before


def _web(manifests):
    return manifests.get("Deployment", "web")
