"""Pods whose processes show each other certificates: the overlay as it is, issued as it asks for.

In the place of cert-manager the test issues what the rendered Certificates say, and renews it.
"""

import asyncio
import json
from copy import deepcopy

import httpx
import pytest

from baton.client import AsyncClient
from bench.faults.http_client import HttpConnection
from bench.harness.metrics import parse_metrics
from tests.k8s.clusters.load import begun, load_on, running
from tests.k8s.manifests.render import OVERLAYS, render
from tests.k8s.pods.cluster import Cluster
from tests.k8s.pods.controllers.certificates import KINDS, Certificates
from tests.k8s.pods.objects.manifests import Manifests
from tests.support.wait import eventually

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(2400)]
UP_SECONDS = 240
ROLL_SECONDS = 400
STREAMS = 4
LOOK_SECONDS = 0.5
EXPIRY = "baton_tls_certificate_expiry_timestamp_seconds"
MODEL, TOKENS = "baton-tiny", 16
DECODE, STRANGER = ("Deployment", "decode"), "deployment/stranger"
VARIABLES = ("BATON_TLS_CERT", "BATON_TLS_KEY", "BATON_TLS_CA")
PLAIN_SUFFIX = "-plain"
PLAIN = ("env", *(f"--unset={name}" for name in VARIABLES), "baton")
"""The commands of a container without its certificate."""
CALL_PLAINLY = """
import sys, grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
for server in sys.argv[1:]:
    name, address = server.split("=")
    for secure in (False, True):
        channel = grpc.insecure_channel(address)
        if secure:
            roots = open("/etc/baton/tls/ca.crt", "rb").read()
            options = [("grpc.ssl_target_name_override", name)]
            channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(roots), options)
        try:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
            print(address, secure, "ANSWERED")
        except grpc.RpcError as error:
            print(address, secure, error.code().name)
"""


@pytest.fixture(scope="module")
def objects():
    return render(OVERLAYS / "certificates")


@pytest.fixture(scope="module")
def certificates(objects):
    return Certificates(objects)


def given_out(objects, certificates, *more):
    others = [one for one in objects if one["kind"] not in KINDS]
    return Manifests([*others, *certificates.secrets, *more])


@pytest.fixture(scope="module")
async def cluster(machine, objects, certificates, tmp_path_factory, baton_images):
    manifests = given_out(objects, certificates)
    directory = tmp_path_factory.mktemp("certificates")
    async with Cluster(manifests, directory, images=baton_images) as cluster:
        await cluster.wait_rolled_out(seconds=UP_SECONDS)
        await cluster.wait_endpoints()
        yield cluster


def containers(cluster):
    """Yield every process of Baton: its pod, the container's name and its ports by name."""
    for pod in cluster.pods:
        for name, runner in pod.runners.items():
            ports = {one["name"]: one["containerPort"] for one in runner.spec.get("ports", ())}
            if name not in ("etcd", "cli"):
                yield pod, name, ports


async def scrape(http, pod, ports):
    (port,) = (number for name, number in ports.items() if name.endswith("ops"))
    answer = await http.get(f"http://{pod.address}:{port}/metrics")
    assert answer.status_code == 200
    return parse_metrics(answer.text)


async def test_readme_is_answered(cluster):
    host, port = cluster.address("frontend", 80).split(":")
    async with HttpConnection(host, int(port)) as connection:
        messages = [{"role": "user", "content": "Hello"}]
        body = {"model": MODEL, "messages": messages, "max_tokens": TOKENS}
        assert (await connection.ask("/v1/chat/completions", body)).texts[0]
    async with AsyncClient(cluster.address("frontend", 50051), timeout=60) as client:
        answer = await client.chat("Hello", model=MODEL, max_tokens=TOKENS).answer()
    assert {"prefill", "transfer"} <= {step.name for step in answer.steps}


async def test_probes_pass_and_scrapes_are_answered(cluster):
    async with httpx.AsyncClient() as http:
        for pod, _, ports in containers(cluster):
            found = await scrape(http, pod, ports)
            shown = {name for name in found if name.startswith(EXPIRY)}
            for certificate in ("internal", "etcd"):
                assert [name for name in shown if f'certificate="{certificate}"' in name]
            assert not [name for name in found if name.startswith("baton_rpc_denied_total")]
        for pod in cluster.of("statefulset/etcd"):
            answer = await http.get(f"http://{pod.address}:2381/metrics")
            assert parse_metrics(answer.text)["etcd_server_has_leader"] == 1
    assert {one.restarts for pod in cluster.pods for one in pod.runners.values()} == {0}


async def test_commands_have_the_certificate_of_operators(cluster):
    (pod,) = cluster.of("deployment/cli")
    code, said = await cluster.execute(pod, "cli", "baton", "status", "--json")
    assert code == 0, said
    rows = json.loads(said)
    assert {row["health"] for row in rows} == {"SERVING"}
    assert {row["id"] for row in rows} == {
        f"{pod.name}-kv" if name == "kvstore" else pod.name for pod, name, _ in containers(cluster)
    }
    assert all(row["load"] for row in rows if row["role"] not in ("frontend", "router"))
    code, said = await cluster.execute(pod, "cli", "baton", "kv", "verify")
    assert code == 0, said


async def test_commands_of_others_are_told_why(cluster):
    (cli,) = cluster.of("deployment/cli")
    frontend = cluster.of("deployment/frontend")[0]
    store = f"{cluster.of('deployment/decode')[0].address}:50052"
    code, said = await cluster.execute(
        frontend, "frontend", "baton", "kv", "stat", "--store", store
    )
    assert code != 0
    assert "Stat is not allowed for the role of this certificate (DNS:frontend.baton)" in said
    code, said = await cluster.execute(cli, "cli", *PLAIN, "kv", "stat", "--store", store)
    assert code != 0
    assert "--tls-cert" in said
    code, said = await cluster.execute(cli, "cli", *PLAIN, "status")
    assert code != 0
    assert "--tls-cert" in said


async def test_who_has_no_certificate_gets_nothing(cluster):
    servers = [f"etcd={pod.address}:2379" for pod in cluster.of("statefulset/etcd")]
    for pod, container, ports in containers(cluster):
        role = pod.name.split("-")[0] if container == "worker" else container
        named = "health" if role == "frontend" else "grpc"
        (port,) = (number for name, number in ports.items() if name.endswith(named))
        servers.append(f"{role}.baton={pod.address}:{port}")
    (cli,) = cluster.of("deployment/cli")
    code, said = await cluster.execute(
        cli, "cli", "python", "-c", CALL_PLAINLY, *servers, seconds=180
    )
    assert code == 0, said
    answers = [line.split() for line in said.splitlines() if line.startswith("10.")]
    assert len(answers) == 2 * len(servers) == 2 * (3 + 2 + 2 + 4 + 4)
    assert {answer[2] for answer in answers} == {"UNAVAILABLE"}


def names_certificates(one):
    return one["kind"] == "ConfigMap" and not one["data"].keys().isdisjoint(VARIABLES)


def without_variables(config_map):
    """Return a copy of a ConfigMap that names no certificate."""
    plain = deepcopy(config_map)
    plain["metadata"]["name"] += PLAIN_SUFFIX
    plain["data"] = {name: each for name, each in plain["data"].items() if name not in VARIABLES}
    return plain


async def test_a_pod_without_certificates_never_takes_part(cluster, objects, certificates):
    decode = next(one for one in objects if (one["kind"], one["metadata"]["name"]) == DECODE)
    stranger = deepcopy(decode)
    stranger["metadata"]["name"] = "stranger"
    stranger["spec"]["replicas"] = 1
    spec = stranger["spec"]["template"]["spec"]
    plain = [without_variables(one) for one in objects if names_certificates(one)]
    sources = {one["metadata"]["name"].removesuffix(PLAIN_SUFFIX) for one in plain}
    for container in (*spec["initContainers"], *spec["containers"]):
        for source in container["envFrom"]:
            if source["configMapRef"]["name"] in sources:
                source["configMapRef"]["name"] += PLAIN_SUFFIX
    assert sources, "or the stranger has its certificate all the same"
    cluster.apply(given_out(objects, certificates, stranger, *plain))

    def refused(container):
        logs = [log for pod in cluster.of(STRANGER) for log in pod.logs.glob(f"{container}-*.log")]
        return any("cluster.registration.failed" in log.read_text() for log in logs)

    try:
        for container in ("kvstore", "worker"):
            await eventually(lambda container=container: refused(container), seconds=120)
        (cli,) = cluster.of("deployment/cli")
        _, said = await cluster.execute(cli, "cli", "baton", "status", "--json")
        assert not [row["id"] for row in json.loads(said) if row["id"].startswith("stranger")]
        assert not [pod for pod in cluster.of(STRANGER) if pod.ready]
    finally:
        cluster.scale(STRANGER, 0)
        await cluster.wait_rolled_out(STRANGER, seconds=ROLL_SECONDS)


async def test_an_authority_is_replaced_twice_under_load(cluster, objects, certificates):
    load = await load_on(cluster, STREAMS)

    async def loaded(http):
        """Return how often each process has taken new files, by certificate."""
        found = {}
        for pod, name, ports in containers(cluster):
            for sample, value in (await scrape(http, pod, ports)).items():
                if sample.startswith("baton_tls_reloads_total") and '"loaded"' in sample:
                    found[pod.name, name, sample] = value
        return found

    async def give_out(step):
        step()
        async with httpx.AsyncClient() as http:
            before = await loaded(http)
            cluster.apply_data(given_out(objects, certificates).data())

            async def taken():
                await asyncio.sleep(LOOK_SECONDS)
                now = await loaded(http)
                processes = {key[:2] for key in now}
                return len(now) == 2 * len(list(containers(cluster))) == 2 * len(processes) and all(
                    value > before.get(key, 0) for key, value in now.items()
                )

            await eventually(taken, seconds=120)

    async def restart(name):
        cluster.restart(name)
        await cluster.wait_rolled_out(name, seconds=ROLL_SECONDS)

    async with running(load) as seen:
        for _ in range(2):
            await give_out(certificates.add_authority)
            # etcd takes new certificates as they come, new authorities when it starts.
            await restart("statefulset/etcd")
            await give_out(certificates.renew)
            await give_out(certificates.drop_old_authorities)
            await restart("deployment/decode")  # all connect to them anew
            print(f"another authority, {begun(seen)} requests")
        await restart("statefulset/etcd")
