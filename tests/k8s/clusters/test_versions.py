"""Versions in pods: all roles are upgraded and rolled back under load, one after the other.

Both ways go in the same order, so that of any two roles each is the newer one for a while. The
clients are those of test_rolling, and see nothing. The version before gives no notice when its
frontends stop: while they are replaced, gRPC clients ask again, and those of HTTP may be refused.
"""

import pytest

from baton.client import AsyncClient
from bench.harness.releases import CHECKOUT
from bench.harness.releases.later import later
from bench.harness.releases.released import released
from tests.k8s.clusters.load import asking, assert_served, begun, load_on, running, wait_begun
from tests.k8s.manifests.render import OVERLAYS, render
from tests.k8s.pods.cluster import Cluster
from tests.k8s.pods.containers.podman import Podman
from tests.k8s.pods.objects.manifests import Manifests
from tests.k8s.releases import image_of, template_of

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(3600)]
UP_SECONDS = 600
ROLL_SECONDS = 400
STREAMS = 6
REQUESTS = 150
"""While each of the mixes comes about and stands, at least: 2,100 in those 14 in which nobody asks
again, however slow the machine is."""
REFUSED = "RefusedError: 503 "
IMAGE = "localhost/baton:0.1.0"
ETCD = {"registry.k8s.io/etcd:3.6.8-0": "localhost/baton-etcd:0.1.0"}
ROUTER, DECODE, PREFILL, FRONTEND = ORDER = tuple(
    f"deployment/{role}" for role in ("router", "decode", "prefill", "frontend")
)


@pytest.fixture(scope="module")
async def versions(machine, tmp_path_factory, baton_images):
    """Versions and their images, by name; the images are removed at the end."""
    base = baton_images.get(IMAGE, IMAGE)
    podman = Podman("versions", tmp_path_factory.mktemp("podman"))
    found = {"checkout": (base, CHECKOUT)}
    others = {"released": released(), "later": later(tmp_path_factory.mktemp("later"))}
    for name, release in others.items():
        directory = tmp_path_factory.mktemp("baton-test-image")
        found[name] = (await image_of(release, base, podman, directory), release)
    yield found
    await podman("rmi", *(image for image, _ in found.values() if image != base))


@pytest.fixture(scope="module")
async def cluster(machine, tmp_path_factory, baton_images):
    manifests = Manifests(render(OVERLAYS / "rolling"))
    directory = tmp_path_factory.mktemp("versions")
    async with Cluster(manifests, directory, images={**ETCD, **baton_images}) as cluster:
        await cluster.wait_rolled_out(seconds=UP_SECONDS)
        await cluster.wait_endpoints()
        yield cluster


@pytest.fixture(scope="module")
async def load(cluster):
    return await load_on(cluster, STREAMS)


@pytest.fixture(scope="module")
def change(cluster, versions):
    """Replaces the pods of roles by those of a version, all roles at once, under load."""
    templates = {role: cluster.workloads[role].spec["template"] for role in ORDER}

    async def change(seen, version, *roles):
        before = begun(seen)
        image, release = versions[version]
        for role in roles:
            template = template_of(templates[role], image, release)
            cluster.workloads[role].spec["template"] = template
        seconds = await cluster.wait_rolled_out(*roles, seconds=ROLL_SECONDS)
        await wait_begun(seen, before + REQUESTS, ROLL_SECONDS)
        print(f"{', '.join(roles)}: {version} in {seconds:.0f} s, {begun(seen)} requests")

    return change


async def prefilled_by(cluster):
    """Return the Deployments of the pods that read some prompts."""
    seen = set()
    async with AsyncClient(cluster.address("frontend", 50051), timeout=60) as client:
        for number in range(6):
            prompt = [3 + number] * 100
            stream = client.generate(prompt, model="baton-tiny", max_tokens=4, ignore_eos=True)
            steps = (await stream.answer()).steps
            seen |= {step.instance.split("-")[0] for step in steps if step.name == "prefill"}
    return seen


async def test_beside_the_version_before(cluster, load, change):
    async with running(load) as seen:
        for role in ORDER:
            await change(seen, "released", role)
        for role in (ROUTER, DECODE, PREFILL):
            await change(seen, "checkout", role)
    async with asking(load, resume=True) as seen:
        await change(seen, "checkout", FRONTEND)
    assert_served(seen["grpc"])
    http = seen["http"]
    assert http.ok and not http.wrong, http.summary()
    assert all(error.startswith(REFUSED) for error in http.errors), http.summary()


async def test_beside_a_version_with_another_layout(cluster, load, change):
    async with running(load) as seen:
        assert await prefilled_by(cluster) == {"prefill"}
        await change(seen, "later", ROUTER)
        # Both pools side by side: neither pairs across.
        await change(seen, "later", DECODE, PREFILL)
        assert await prefilled_by(cluster) == {"prefill"}
        await change(seen, "later", FRONTEND)
        await change(seen, "checkout", ROUTER)
        await change(seen, "checkout", DECODE)
        assert await prefilled_by(cluster) == {"decode"}, "who has no counterpart serves alone"
        await change(seen, "checkout", PREFILL)
        assert await prefilled_by(cluster) == {"prefill"}
        await change(seen, "checkout", FRONTEND)
