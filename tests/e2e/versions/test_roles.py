"""Processes of two versions in one cluster: every pair of roles, either of them the newer one."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest

from baton.client import Answer
from baton.cluster import keys
from tests.e2e.faults.test_faults import expected_tokens
from tests.k8s.pods.probes.checks import check
from tests.k8s.releases import PROBES
from tests.support.engine.model import MODEL, prompt_of
from tests.support.pairwise import pairwise
from tests.support.processes.launcher import Launcher
from tests.support.services.cluster import LocalCluster
from tests.support.wait import eventually

pytestmark = [pytest.mark.xdist_group("versions"), pytest.mark.timeout(300)]

INSTANCES = ("frontend-0", "router-0", "prefill-0", "decode-0", "kvstore-0", "kvstore-1")
NEIGHBOURS = [
    ("prefill-0", "decode-0", "kvstore-1"),
    ("frontend-0", "router-0", "kvstore-0"),
    ("router-0", "decode-0"),
    ("frontend-0", "prefill-0", "kvstore-0", "kvstore-1"),
]
"""Of any two instances that speak with each other, one is in a row and the other is not, both ways:
prefill workers have kvstore-0, decode workers kvstore-1."""
EVERY_PAIR = pairwise(*[("checkout", "released", "later")] * len(INSTANCES))
STREAMS = 4
OUTPUT_TOKENS = 40
BLOCK = 16
PROBE_SECONDS = 10.0
SETTINGS = {
    "store.peer_transports": ("grpc",),
    "engine.sim_time_scale": 0,
    # What a worker waits for a router that does not say that it is one.
    "limits.ready_seconds": 0.5,
}

Launchers = Mapping[str, Launcher]


async def ask(cluster: LocalCluster, i: int) -> Answer:
    stream = cluster.client.generate(
        prompt_of(150 + i, i), model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, seed=i
    )
    return await stream.answer()


async def chat(cluster: LocalCluster) -> str:
    """Ask over HTTP, which takes the tokenizer that the frontend got from a worker."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Who are you?"}],
        "max_tokens": 8,
        "temperature": 0,
    }
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{cluster.http}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


async def all_serve(cluster: LocalCluster, launcher: Launcher) -> None:
    """Wait until `baton status` of another version shows every instance, serving."""
    command = ["-m", "baton", "status", "--json", "--cluster", cluster.name]
    command += ["--etcd-endpoint", cluster.etcd.endpoints[0]]

    async def seen() -> bool:
        code, out, err = await launcher.run(command, {"PATH": os.environ["PATH"]})
        assert code == 0, err
        health = {row["id"]: row["health"] for row in json.loads(out)}
        assert set(health) == set(INSTANCES)
        return set(health.values()) == {"SERVING"}

    await eventually(seen)


async def probes_succeed(cluster: LocalCluster, names: Sequence[str]) -> None:
    """Probe processes of the version before as their pods are probed."""

    async def run(command: list[str], seconds: float) -> int:
        raise AssertionError(f"a probe runs {command}")

    for name in names:
        host, _, port = cluster[name].address.rpartition(":")
        for kind, service in PROBES.items():
            probe = {"grpc": {"port": int(port), "service": service}}
            assert await check(probe, {}, host, run, PROBE_SECONDS) == "", (name, kind)


async def serves(cluster: LocalCluster, expected: list[tuple[int, ...]]) -> list[Answer]:
    """Ask and return the answers, which are those that are expected."""
    answers = await asyncio.gather(*(ask(cluster, i) for i in range(STREAMS)))
    assert [answer.token_ids for answer in answers] == expected[:STREAMS]
    return answers


async def compute_once(cluster: LocalCluster, expected: list[tuple[int, ...]]) -> list[Answer]:
    """Ask, and check that each token is computed once: what one version puts the other one gets."""
    before = await cluster.computed_tokens()
    answers = await serves(cluster, expected)
    needed = sum(150 + i + OUTPUT_TOKENS - 1 for i in range(STREAMS))
    assert await cluster.computed_tokens() - before <= needed + STREAMS * BLOCK
    return answers


def prefilled_by(answers: list[Answer]) -> set[str]:
    return {step.instance for one in answers for step in one.steps if step.name == "prefill"}


async def start(
    local_cluster: Any, launchers: Launchers, versions: Mapping[str, str]
) -> LocalCluster:
    """Start a cluster in which some instances are of other versions than the checkout's."""
    others = {name: launchers[version] for name, version in versions.items()}
    cluster: LocalCluster = await local_cluster(
        own=True, far=True, launchers=others, settings=SETTINGS
    )
    return cluster


@pytest.mark.parametrize("others", NEIGHBOURS, ids="+".join)
async def test_beside_the_version_before(
    local_cluster: Any, random_model: Any, launchers: Launchers, others: tuple[str, ...]
) -> None:
    cluster = await start(local_cluster, launchers, dict.fromkeys(others, "released"))
    expected = expected_tokens(random_model())
    assert prefilled_by(await compute_once(cluster, expected)) == {"prefill-0"}
    await serves(cluster, expected)
    assert await chat(cluster)
    await all_serve(cluster, launchers["released"])
    await probes_succeed(cluster, others)


@pytest.mark.parametrize(
    "others",
    [
        row if at in (0, 2) else pytest.param(row, marks=pytest.mark.soak)
        for at, row in enumerate(NEIGHBOURS)
    ],
    ids="+".join,
)
async def test_beside_a_version_with_more_fields_and_another_layout(
    local_cluster: Any, random_model: Any, launchers: Launchers, others: tuple[str, ...]
) -> None:
    cluster = await start(local_cluster, launchers, dict.fromkeys(others, "later"))
    expected = expected_tokens(random_model())
    answers = await compute_once(cluster, expected)
    await serves(cluster, expected)
    assert await chat(cluster)
    alone = cluster["prefill-0"].instance.layout_id != cluster["decode-0"].instance.layout_id
    assert alone == (("prefill-0" in others) != ("decode-0" in others))
    # Nobody pairs across layouts: who decodes reads the prompt itself.
    assert prefilled_by(answers) == ({"decode-0"} if alone else {"prefill-0"})
    for name in others:
        record = await cluster.etcd.get(keys.instance(cluster.name, name))
        assert b"of_a_later_release" in (record or b""), "an older process has written it"
    await all_serve(cluster, launchers["later"])


@pytest.mark.soak
@pytest.mark.parametrize("row", EVERY_PAIR, ids="+".join)
async def test_three_versions_at_once(
    local_cluster: Any, random_model: Any, launchers: Launchers, row: tuple[str, ...]
) -> None:
    versions = dict(zip(INSTANCES, row, strict=True))
    others = {name: version for name, version in versions.items() if version != "checkout"}
    cluster = await start(local_cluster, launchers, others)
    answers = await serves(cluster, expected_tokens(random_model()))
    alone = (versions["prefill-0"] == "later") != (versions["decode-0"] == "later")
    assert prefilled_by(answers) == ({"decode-0"} if alone else {"prefill-0"})
