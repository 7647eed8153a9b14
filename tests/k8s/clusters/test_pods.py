"""The pods of tests are as those of a cluster: seen from within, and through their Service."""

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.k8s.manifests.render import OVERLAYS, render
from tests.k8s.pods.cluster import Cluster
from tests.k8s.pods.containers.abandoned import ip, link_name, owner, remove_abandoned
from tests.k8s.pods.containers.memory import SOURCE, mount_memory, unmount
from tests.k8s.pods.containers.podman import Podman, PodmanError
from tests.k8s.pods.objects.manifests import Manifests
from tests.support.clock import within
from tests.support.wait import eventually

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(600)]
WEB, MEMBER = "deployment/web", "statefulset/member"
UP_SECONDS = 180
SMALL = OVERLAYS / "small"


@pytest.fixture(scope="module")
async def cluster(small_image, tmp_path_factory):
    directory = tmp_path_factory.mktemp("cluster")
    async with Cluster(
        Manifests(render(SMALL)), directory, images={"small": small_image}
    ) as cluster:
        await cluster.wait_rolled_out(seconds=UP_SECONDS)
        await cluster.wait_endpoints()
        yield cluster
    assert str(directory) not in await asyncio.to_thread(Path("/proc/mounts").read_text)
    label = f"label={cluster.host.podman.label}"
    assert not await cluster.host.podman("ps", "-aq", "--filter", label)
    assert not await cluster.host.podman("network", "ls", "-q", "--filter", label)


async def get(address, path):
    """Return the body of an answer.

    Raises:
        OSError: there is none, or it is no success.
    """
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        async with within(10):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0]:
            raise OSError(f"{path}: {head[:80]!r}")
        return body.decode()
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def test_what_a_pod_is_from_within(cluster):
    pod = cluster.of(WEB)[0]
    address = f"{pod.address}:8080"
    assert await get(address, "/uid") == "65532\n"
    assert await get(address, "/root") == "refused\n"
    assert await get(address, "/name") == f"{pod.name}\n"
    variables = dict(
        line.split("=", 1) for line in (await get(address, "/env")).splitlines() if "=" in line
    )
    assert variables["URL"] == f"http://{pod.address}:8080"
    assert (variables["GREETING"], variables["TOKEN"]) == ("hello", "s3cret")
    assert not [name for name in variables if name.endswith("_SERVICE_HOST")]
    assert await get(address, "/settings/GREETING") == "hello"
    status = dict(line.split(":\t", 1) for line in (await get(address, "/status")).splitlines())
    assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
    assert status["NoNewPrivs"] == "1"
    code, said = await cluster.execute(pod, "server", "cat", "/proc/mounts")
    assert code == 0
    assert " /www tmpfs rw,nosuid,nodev,relatime,size=1024k,mode=2777,gid=65532 " in said


async def test_names_and_service_links(cluster):
    first, second = sorted(cluster.of(MEMBER), key=lambda pod: pod.name)
    for name, address in (
        ("web", cluster.address("web", 80).split(":")[0]),
        ("member-1.member", second.address),
        ("member-0.member.small.svc.cluster.local", first.address),
    ):
        _, said = await cluster.execute(first, "member", "wget", "-qO-", f"http://{name}:1/")
        assert f"({address})" in said
    _, said = await cluster.execute(first, "member", "env")
    assert "WEB_SERVICE_HOST=10." in said


async def ask(cluster, seen, stop):
    while not stop.is_set():
        try:
            seen[await get(cluster.address("web", 80), "/name")] += 1
        except OSError as error:
            seen[f"failed: {type(error).__name__}"] += 1
        await asyncio.sleep(0.02)


async def under_load(cluster, work):
    """Return who answered while `work` went on, and how often."""
    seen, stop = Counter[str](), asyncio.Event()
    asking = asyncio.create_task(ask(cluster, seen, stop))
    try:
        await work
        await cluster.wait_endpoints()
    finally:
        stop.set()
        await asking
    return seen


async def test_a_rollout_fails_nobody(cluster):
    before = {f"{pod.name}\n" for pod in cluster.of(WEB)}
    cluster.restart(WEB)
    seen = await under_load(cluster, cluster.wait_rolled_out(WEB, seconds=UP_SECONDS))
    assert not [said for said in seen if said.startswith("failed")], seen
    after = {f"{pod.name}\n" for pod in cluster.of(WEB)}
    assert set(seen) >= before | after
    assert not before & after


async def test_without_a_pre_stop_hook_late_endpoints_fail_some(cluster):
    container = cluster.workloads[WEB].spec["template"]["spec"]["containers"][0]
    hook = container.pop("lifecycle")
    await cluster.wait_rolled_out(WEB, seconds=UP_SECONDS)
    cluster.restart(WEB)
    seen = await under_load(cluster, cluster.wait_rolled_out(WEB, seconds=UP_SECONDS))
    assert [said for said in seen if said.startswith("failed")], seen
    container["lifecycle"] = hook
    await cluster.wait_rolled_out(WEB, seconds=UP_SECONDS)


async def test_sidecars_end_last_and_who_does_not_heed_is_killed(cluster):
    web, member = cluster.of(WEB)[0], cluster.of(MEMBER)[1]
    web.delete()
    member.delete()
    await eventually(lambda: web.phase == member.phase == "Gone", 30)
    helper = (web.logs / "helper-0.log").read_text()
    assert "helper ended after the server" in helper
    assert "container member was killed" in " ".join(member.events)
    await cluster.wait_rolled_out(seconds=UP_SECONDS)
    again = next(pod for pod in cluster.of(MEMBER) if pod.name == member.name)
    # The same name and volume, another address.
    assert again.address != member.address
    assert (await get(f"{again.address}:8080", "/starts")).count(member.name) == 2


async def test_a_container_that_dies_is_started_again(cluster):
    pod = cluster.of(WEB)[0]
    before = pod.runners["server"].restarts
    pod.runners["server"].container.kill()
    await eventually(lambda: pod.runners["server"].restarts > before, 20)
    await eventually(lambda: pod.ready, 20)
    assert pod.runners["server"].last_exit_code == 137
    assert pod.runners["helper"].restarts == 0


async def test_a_container_that_hangs_is_restarted_by_its_liveness(cluster):
    pod = cluster.of(WEB)[1]
    before = pod.runners["server"].restarts
    stop = ("sh", "-c", "kill -STOP $(pidof httpd)")
    assert await cluster.execute(pod, "server", *stop) == (0, "")
    await eventually(lambda: not pod.ready, 20)
    await eventually(lambda: "liveness probe" in " ".join(pod.events), 20)
    await eventually(lambda: pod.runners["server"].restarts > before, 40)
    await eventually(lambda: pod.ready, 20)


async def test_a_drained_node_is_left_one_by_one(cluster):
    node = cluster.of(WEB)[0].identity.node
    seen = await under_load(cluster, cluster.drain(node, seconds=UP_SECONDS))
    assert not [said for said in seen if said.startswith("failed")], seen
    await cluster.wait_rolled_out(seconds=UP_SECONDS)
    assert node not in {pod.identity.node for pod in cluster.pods}
    cluster.uncordon(node)


async def test_fewer_and_more(cluster):
    cluster.scale(WEB, 3)
    await cluster.wait_rolled_out(WEB, seconds=UP_SECONDS)
    cluster.scale(WEB, 1)
    seen = await under_load(cluster, cluster.wait_rolled_out(WEB, seconds=UP_SECONDS))
    assert not [said for said in seen if said.startswith("failed")], seen


async def test_what_a_killed_run_left_is_removed(machine, tmp_path):
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    podman = Podman("killed", tmp_path)
    labels = [word.replace(str(os.getpid()), str(gone.pid)) for word in owner(podman)]
    await podman("network", "create", "--disable-dns", *labels, "baton-test-killed")
    await ip("link", "add", link_name("killed"), "type", "bridge")
    own, others = tmp_path / "own", tmp_path / "others" / "volume"
    own.mkdir()
    others.mkdir(parents=True)
    mount_memory(own, "size=1M")
    tmpfs = ("mount", "-t", "tmpfs", f"{SOURCE}-{gone.pid}", others)
    assert await (await asyncio.create_subprocess_exec(*tmpfs)).wait() == 0
    renamed = others.parent.rename(tmp_path / "garbage-1")  # as pytest does with old directories
    try:
        assert await remove_abandoned(tmp_path) == ["killed"]
        mounts = await asyncio.to_thread(Path("/proc/mounts").read_text)
        assert str(own) in mounts and str(renamed) not in mounts
    finally:
        unmount(own)
    with pytest.raises(PodmanError, match="network not found"):
        await podman("network", "inspect", "baton-test-killed")
    assert await remove_abandoned(tmp_path) == []
