"""A store per node, in pods: workers find that of theirs, share what it holds, and outlive it."""

import asyncio
import json

import httpx
import pytest

from bench.harness.fleet import total
from bench.harness.metrics import parse_metrics
from tests.k8s.clusters.load import load_on, running, wait_begun
from tests.k8s.manifests.render import OVERLAYS, render
from tests.k8s.pods.cluster import Cluster
from tests.k8s.pods.objects.manifests import Manifests
from tests.support.wait import eventually

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(1800)]
ETCD = {"registry.k8s.io/etcd:3.6.8-0": "localhost/baton-etcd:0.1.0"}
STORES = "daemonset/kvstore"
WORKERS = ("deployment/prefill", "deployment/decode")
STREAMS = 3
REQUESTS = 60
UP_SECONDS = 600
ROLL_SECONDS = 400
STORE_OPS, WORKER_OPS = 9091, 9090
MOVED = "baton_kv_moved_bytes_total"


@pytest.fixture(scope="module")
async def cluster(machine, tmp_path_factory, baton_images):
    manifests = Manifests(render(OVERLAYS / "node_store"))
    directory = tmp_path_factory.mktemp("node-store")
    images = {**ETCD, **baton_images}
    async with Cluster(manifests, directory, images=images, nodes=("a", "b")) as cluster:
        await cluster.wait_rolled_out(seconds=UP_SECONDS)
        await cluster.wait_endpoints()
        yield cluster


@pytest.fixture(scope="module")
async def load(cluster):
    return await load_on(cluster, STREAMS)


def workers(cluster):
    return [pod for role in WORKERS for pod in cluster.of(role)]


def events(pod, container, name):
    """Return the events of a name in the logs of a container."""
    lines = [
        line.split(" ", 3)[3]
        for log in sorted(pod.logs.glob(f"{container}-*.log"))
        for line in log.read_text().splitlines()
    ]
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in found if one["event"] == name]


async def metrics(pod, port):
    async with httpx.AsyncClient() as http:
        answer = await http.get(f"http://{pod.address}:{port}/metrics")
    return parse_metrics(answer.text)


async def moved(pod):
    """Return the bytes that a store has moved, by memory and otherwise."""
    shown = await metrics(pod, STORE_OPS)
    by_memory = total(shown, MOVED, 'transport="shm"')
    return by_memory, total(shown, MOVED) - by_memory


async def fetched(pods):
    """Return the bytes of KV that workers got of their stores."""
    shown = await asyncio.gather(*(metrics(pod, WORKER_OPS) for pod in pods))
    return [total(one, "baton_worker_kv_get_bytes_total") for one in shown]


def arenas(cluster, node):
    return sorted(path.name for path in (cluster.host.node(node) / "dev" / "shm").glob("*.arena"))


async def test_a_worker_shares_memory_with_the_store_of_its_node(cluster):
    found = workers(cluster)
    assert sorted(pod.identity.node for pod in found) == ["a", "a", "b", "b"]
    for pod in found:
        (attached,) = events(pod, "worker", "kv.store.attached")
        assert (attached["peer"], attached["transport"]) == (f"{pod.identity.node}-kv", "shm")


async def test_workers_of_a_node_share_what_its_store_holds(cluster, load):
    await cluster.drain("b", seconds=ROLL_SECONDS)
    await cluster.wait_rolled_out(*WORKERS, seconds=ROLL_SECONDS)
    assert {pod.identity.node for pod in workers(cluster)} == {"a"}
    assert [pod.identity.node for pod in cluster.of(STORES)] == ["a", "b"], "a drain leaves them"
    (store,) = (pod for pod in cluster.of(STORES) if pod.identity.node == "a")
    before, elsewhere = await moved(store)
    async with running(load) as seen:
        await wait_begun(seen, REQUESTS, ROLL_SECONDS)
    after, still_elsewhere = await moved(store)
    # What the other node's store holds is still fetched from there.
    print(f"{after - before:.0f} bytes by memory, {still_elsewhere - elsewhere:.0f} otherwise")
    assert after - before > 10 * (still_elsewhere - elsewhere)
    assert all(await fetched(cluster.of("deployment/decode"))), "what others computed"


async def test_a_store_that_is_replaced_fails_nobody(cluster, load):
    before = {pod.name for pod in cluster.of(STORES)}
    async with running(load):
        cluster.restart(STORES)
        await cluster.wait_rolled_out(STORES, seconds=ROLL_SECONDS)
        await used_again(cluster)
    assert not before & {pod.name for pod in cluster.of(STORES)}


async def test_a_store_that_is_killed_fails_nobody(cluster, load):
    (store,) = (pod for pod in cluster.of(STORES) if pod.identity.node == "a")
    async with running(load):
        store.runners["kvstore"].container.kill()
        await eventually(lambda: store.runners["kvstore"].restarts == 1 and store.ready, UP_SECONDS)
        await used_again(cluster)
    assert len(arenas(cluster, "a")) == 1, "the one of the process that was killed is gone"


async def used_again(cluster):
    """Wait until workers get KV of the store that is there now, by memory."""
    decode = cluster.of("deployment/decode")
    begin = await fetched(decode)

    async def more():
        return all(now > then for now, then in zip(await fetched(decode), begin, strict=True))

    await eventually(more, ROLL_SECONDS)
    for pod in workers(cluster):
        assert events(pod, "worker", "kv.store.attached")[-1]["transport"] == "shm"
