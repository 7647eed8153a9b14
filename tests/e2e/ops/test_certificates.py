"""A cluster whose processes show each other certificates, and certificates that are replaced."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from baton.cli.admin.certs.directory import CertificateDirectory
from baton.cluster.members.membership import health_address
from baton.cluster.members.probe import liveness
from baton.rpc.tls.mutual import mutual_tls
from baton.settings import TlsSettings
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL, prompt_of
from tests.support.processes.launcher import Launcher
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> CertificateDirectory:
    return made(tmp_path_factory.mktemp("certificates"))


def made(path: Path) -> CertificateDirectory:
    directory = CertificateDirectory(path)
    directory.add_authority()
    directory.issue("baton", 1, ["127.0.0.1"])
    return directory


def reloads(metrics: dict[str, float]) -> float:
    return sum(v for name, v in metrics.items() if "tls_reloads" in name and '"loaded"' in name)


async def ask(cluster: LocalCluster, number: int, tokens: int = 8) -> Any:
    stream = cluster.client.generate(
        prompt_of(100 + number), model=MODEL, max_tokens=tokens, ignore_eos=True
    )
    return await stream.answer()


async def test_a_request_through_both_pools_and_both_stores(
    local_cluster: Any, certificates: CertificateDirectory
) -> None:
    cluster = await local_cluster(far=True, certificates=certificates.path)
    before = await denied(cluster)
    answer = await ask(cluster, 400)
    steps = {step.name: step for step in answer.steps}
    assert len(answer.token_ids) == 8
    assert steps["route"].instance == "router-0"
    assert steps["prefill"].instance == "prefill-0"
    assert steps["transfer"].tokens >= 496
    values = await cluster.frontend.metrics()
    assert values['baton_tls_certificate_expiry_timestamp_seconds{certificate="internal"}'] > 1.7e9
    assert await denied(cluster) == before


async def denied(cluster: LocalCluster) -> dict[tuple[str, str], float]:
    """Return how often each process refused a call by its caller's role, by call."""
    return {
        (name, call): count
        for name, service in cluster.services.items()
        for call, count in (await service.metrics()).items()
        if call.startswith("baton_rpc_denied_total")
    }


Command = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
def command(launcher: Launcher) -> Command:
    """Runs `baton` as a role of some certificates: exit code, output and complaints."""

    async def run(cluster: LocalCluster, own: Path | None, *arguments: str) -> tuple[int, str, str]:
        files = {"CERT": "tls.crt", "KEY": "tls.key", "CA": "ca.crt"} if own else {}
        shown = {f"BATON_TLS_{name}": f"{own}/{file}" for name, file in files.items()}
        variables = {"BATON_ETCD_ENDPOINTS": cluster.etcd.endpoints[0], "BATON_ETCD_PLAINTEXT": "1"}
        main = ("-c", "from baton.cli.app import main; main()")
        there = ("--cluster", cluster.name)
        environment = {"PATH": os.environ["PATH"], **variables, **shown}
        return await launcher.run((*main, *arguments, *there), environment)

    return run


async def test_commands_with_an_operators_certificate(
    local_cluster: Any, certificates: CertificateDirectory, command: Command
) -> None:
    cluster = await local_cluster(far=True, certificates=certificates.path)
    await ask(cluster, 300)
    own = certificates.path / "operator"
    code, out, err = await command(cluster, own, "status", "--json")
    assert (code, err) == (0, "")
    rows = {row["id"]: row for row in json.loads(out)}
    assert rows.keys() == cluster.services.keys()
    assert {row["health"] for row in rows.values()} == {"SERVING"}
    for name, row in rows.items():
        assert bool(row["load"]) == (not name.startswith(("frontend", "router")))
    for arguments in (("kv", "stat"), ("kv", "ls"), ("kv", "verify")):
        code, out, err = await command(cluster, own, *arguments)
        assert (code, err) == (0, "")
    valid = {line.split()[0]: int(line.split()[1]) for line in out.splitlines()[1:]}
    assert valid.keys() == {store.instance.address for store in cluster.stores}
    assert all(valid.values()), "both stores have KV of that prompt"


@pytest.mark.parametrize(
    ("who", "status", "stat"),
    [
        (
            "frontend",
            "only operators can read the load: ",
            "Stat is not allowed for the role of this",
        ),
        ("plain text", "no process is reachable. If the cluster uses mutual TLS", "--tls-cert"),
        ("stranger", "no process is reachable. The processes may use no certificates", "--tls-ca"),
    ],
)
async def test_commands_of_others_say_what_is_wrong(
    local_cluster: Any,
    certificates: CertificateDirectory,
    command: Command,
    tmp_path: Path,
    who: str,
    status: str,
    stat: str,
) -> None:
    cluster = await local_cluster(far=True, certificates=certificates.path)
    own = {"frontend": certificates.path / "frontend", "plain text": None}
    if who not in own:
        own[who] = made(tmp_path).path / "operator"
    code, out, err = await command(cluster, own[who], "status")
    assert code == 1
    assert status in err
    assert all(name in out for name in cluster.services)
    assert ("SERVING" in out) == (who == "frontend")
    code, out, err = await command(cluster, own[who], "kv", "stat")
    assert code != 0
    assert stat in err
    assert "Traceback" not in err


async def test_strangers_get_nothing_and_members_are_probed(
    local_cluster: Any, certificates: CertificateDirectory
) -> None:
    cluster = await local_cluster(far=True, certificates=certificates.path)
    own = certificates.path / "router"
    files = {"cert": own / "tls.crt", "key": own / "tls.key", "ca": own / "ca.crt"}
    for service in cluster.services.values():
        instance = service.instance
        address = health_address(instance)
        async with mutual_tls(TlsSettings(**files)):  # type: ignore[arg-type]
            assert await liveness(address, instance.incarnation, 10) == "alive"
        async with mutual_tls(TlsSettings()):
            assert await liveness(address, instance.incarnation, 10) == "dead"
        async with grpc.aio.insecure_channel(address) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary("/grpc.health.v1.Health/Check")(
                    b"", timeout=DEADLINE_SECONDS
                )
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


@asynccontextmanager
async def load(cluster: LocalCluster, lanes: int) -> AsyncIterator[list[int]]:
    """Ask from several lanes until the context is left; every answer has to be whole."""
    answers: list[int] = []
    stopping = False

    async def lane(number: int) -> None:
        while not stopping:
            answers.append(len((await ask(cluster, number, 20)).token_ids))

    async with asyncio.TaskGroup() as group:
        for number in range(lanes):
            group.create_task(lane(number))
        yield answers
        stopping = True


async def test_an_authority_is_replaced_twice_under_load(
    local_cluster: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = made(tmp_path_factory.mktemp("replaced"))
    cluster: LocalCluster = await local_cluster(
        own=True,
        decode=2,
        certificates=directory.path,
        settings={"tls.check_seconds": 0.05},
    )

    async def loaded() -> dict[str, float]:
        services = cluster.services.items()
        return {name: reloads(await one.metrics()) for name, one in services}

    steps = (
        directory.add_authority,
        lambda: directory.issue("baton", 1, ["127.0.0.1"]),
        directory.drop_old_authorities,
    )
    async with load(cluster, 4) as answers:
        for step in steps * 2:
            before = await loaded()
            step()

            async def taken(before: dict[str, float] = before) -> bool:
                return all(count > before[name] for name, count in (await loaded()).items())

            await eventually(taken)
            await cluster.restart("decode-1")  # all connect to it anew
            asked = len(answers)
            await eventually(lambda asked=asked: len(answers) > asked + 4)
    assert set(answers) == {20}
    assert len(directory.authorities()) == 1
