"""Everything in pods is replaced under load, and no client notices.

HTTP keep-alive and gRPC clients without retries ask through the Service, whose endpoints are late.
A third of their streams are longer than the drain of any pod but their frontend's. Each answer is
compared with what an engine says on which nothing happened.
"""

import pytest

from tests.k8s.clusters.load import begun, load_on, running
from tests.k8s.manifests.render import OVERLAYS, render
from tests.k8s.pods.cluster import Cluster
from tests.k8s.pods.objects.manifests import Manifests

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(2400)]
UP_SECONDS = 600
ROLL_SECONDS = 400
STREAMS = 6
REQUESTS = 2000
ROLES = tuple(f"deployment/{role}" for role in ("prefill", "decode", "router", "frontend"))
ETCD = {"registry.k8s.io/etcd:3.6.8-0": "localhost/baton-etcd:0.1.0"}


@pytest.fixture(scope="module")
async def cluster(machine, tmp_path_factory, baton_images):
    manifests = Manifests(render(OVERLAYS / "rolling"))
    directory = tmp_path_factory.mktemp("rolling")
    async with Cluster(manifests, directory, images={**ETCD, **baton_images}) as cluster:
        await cluster.wait_rolled_out(seconds=UP_SECONDS)
        await cluster.wait_endpoints()
        yield cluster


@pytest.fixture(scope="module")
async def load(cluster):
    return await load_on(cluster, STREAMS)


async def test_every_role_is_restarted(cluster, load):
    async with running(load) as seen:
        while begun(seen) < REQUESTS:
            for role in ROLES:
                before = {pod.name for pod in cluster.of(role)}
                cluster.restart(role)
                seconds = await cluster.wait_rolled_out(role, seconds=ROLL_SECONDS)
                assert not before & {pod.name for pod in cluster.of(role)}
                print(f"{role} replaced in {seconds:.0f} s, {begun(seen)} requests")


async def test_the_members_of_etcd_are_restarted(cluster, load):
    async with running(load):
        cluster.restart("statefulset/etcd")
        await cluster.wait_rolled_out("statefulset/etcd", seconds=ROLL_SECONDS)


async def test_more_and_fewer(cluster, load):
    async with running(load):
        for count in (3, 1, 2):
            for role in ROLES:
                cluster.scale(role, count)
            await cluster.wait_rolled_out(*ROLES, seconds=ROLL_SECONDS)


async def test_a_node_is_drained(cluster, load):
    node = cluster.of("deployment/frontend")[0].identity.node
    async with running(load):
        await cluster.drain(node, seconds=ROLL_SECONDS)
        await cluster.wait_rolled_out(*ROLES, seconds=ROLL_SECONDS)
    assert not [pod for pod in cluster.pods if pod.identity.node == node]
