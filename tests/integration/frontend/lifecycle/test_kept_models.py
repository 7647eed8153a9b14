"""A model stays known when its last worker leaves: frontends start and answer once one comes."""

import asyncio
from typing import Any

import httpx
import pytest

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2
from baton.worker.kept.keeper import ModelKeeper
from baton.worker.wire.tokenizer_files import TokenizerFiles
from tests.support.wait import eventually

KEEP_SECONDS = 60
DECODE = cluster_pb2.ROLE_DECODE


@pytest.fixture
def files(model_dir: Any) -> TokenizerFiles:
    return TokenizerFiles.read(model_dir)


def card(name: str, files: TokenizerFiles, **fields: Any) -> cluster_pb2.ModelCard:
    given: dict[str, Any] = {
        "layout_id": b"L" * 16, "block_tokens": 16, "block_bytes": 4096, "context_tokens": 512,
        "vocab_tokens": 257, "eos_token_ids": [256],
    }  # fmt: skip
    return cluster_pb2.ModelCard(
        name=name,
        tokenizer_digest=files.digest,
        tokenizer_bytes=files.size,
        **(given | fields),
    )


async def keeper(
    etcd: Etcd, cluster: str, one: cluster_pb2.ModelCard, files: TokenizerFiles
) -> ModelKeeper:
    """Return a keeper whose tokenizer is compressed."""
    made = ModelKeeper(etcd, cluster, one, files, KEEP_SECONDS)
    task = asyncio.create_task(made.run())
    try:
        await eventually(lambda: not made.is_latest)
    finally:
        task.cancel()
        await asyncio.wait([task])
    return made


async def kept(etcd: Etcd, cluster: str, name: str) -> cluster_pb2.KeptModel | None:
    value = await etcd.get(keys.kept(cluster) + name)
    return None if value is None else keys.decode(cluster_pb2.KeptModel, value)


async def say_hi(http: httpx.AsyncClient, model: str) -> httpx.Response:
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": model, "messages": messages, "max_tokens": 3}
    return await http.post("/v1/chat/completions", json=body)


async def test_a_frontend_without_workers_serves_a_kept_model_when_one_comes(
    empty_stage: Any, files: TokenizerFiles
) -> None:
    stage = empty_stage
    await keeper(stage.client, stage.cluster, card(stage.model, files), files)
    await stage.add("router", cluster_pb2.ROLE_ROUTER)

    def place(_: Any) -> Any:
        if "d0" in stage.members:
            return stage.place("d0")
        return BatonError(Reason.NO_WORKER, "no decode worker", retry_after=1.0)

    stage.router.place = place
    await stage.start_frontend({"limits.wait_for_worker_seconds": 0.05})
    async with httpx.AsyncClient(base_url=stage.http_url) as http:
        assert (await http.get("/health")).status_code == 200
        names = [one["id"] for one in (await http.get("/v1/models")).json()["data"]]
        assert names == [stage.model]
        asked = asyncio.create_task(say_hi(http, stage.model))
        await eventually(lambda: len(stage.router.queries) == 1)
        await asyncio.sleep(0.2)
        assert not asked.done(), "it waits for a worker to be started"
        # A router that starts meanwhile learns of it.
        await stage.members.pop("router").stack.aclose()
        await stage.add("router", cluster_pb2.ROLE_ROUTER)
        stage.router.place = place
        await eventually(lambda: len(stage.router.queries) == 1)
        await stage.add("d0", DECODE)
        assert (await asked).status_code == 200


async def test_a_request_for_a_kept_model_wakes_its_pools(
    empty_stage: Any, files: TokenizerFiles
) -> None:
    stage = empty_stage
    await keeper(stage.client, stage.cluster, card(stage.model, files), files)
    router = await stage.services("router", {}, "router")
    await stage.start_frontend()

    def needed() -> set[float]:
        return {
            router.sample("baton_needed_replicas", model=stage.model, role=role)
            for role in ("prefill", "decode", "combined")
        }

    async with httpx.AsyncClient(base_url=stage.http_url) as http:
        asked = asyncio.create_task(say_hi(http, stage.model))
        await eventually(lambda: needed() == {1.0}, 15)
        asked.cancel()
        await asyncio.wait([asked])
    why = router.sample(
        "baton_needed_replicas_reason", model=stage.model, role="decode", reason="wake"
    )
    assert why == 1


async def test_a_request_fails_when_no_worker_was_started_in_time(
    empty_stage: Any, files: TokenizerFiles
) -> None:
    stage = empty_stage
    await keeper(stage.client, stage.cluster, card(stage.model, files), files)
    await stage.add("router", cluster_pb2.ROLE_ROUTER)
    stage.router.place = lambda _: BatonError(Reason.NO_WORKER, "none", retry_after=1.0)
    await stage.start_frontend(
        {"limits.wait_for_worker_seconds": 0.01, "cluster.model_start_seconds": 0.3}
    )
    async with httpx.AsyncClient(base_url=stage.http_url) as http:
        answer = await say_hi(http, stage.model)
    assert answer.status_code == 503
    assert "none appeared within 0.3 s" in answer.json()["error"]["message"]


async def test_the_last_worker_that_starts_decides_which_tokenizer_is_kept(
    etcd_client: Etcd, cluster: str
) -> None:
    old, new = TokenizerFiles(b"old", b"{}"), TokenizerFiles(b"new" * 1_000_000, b"{}")
    first = await keeper(etcd_client, cluster, card("org/m", old), old)
    second = await keeper(etcd_client, cluster, card("org/m", new), new)
    assert await first.refresh(), "an older worker leaves it as it is"
    assert await second.refresh()
    found = await kept(etcd_client, cluster, "org/m")
    assert found is not None
    assert [one.tokenizer_digest for one in found.cards] == [new.digest]
    assert found.tokenizer_pieces == 4
    assert await etcd_client.count(keys.tokenizer(cluster, old.digest, "org/m")) == 0
    assert await etcd_client.count(keys.tokenizer(cluster, new.digest, "org/m")) == 4


async def test_workers_share_one_lease_and_list_their_variants(
    etcd_client: Etcd, cluster: str
) -> None:
    files = TokenizerFiles(b"tokens", b"{}")
    layouts = [bytes([number]) * 16 for number in range(10)]
    keepers = [
        await keeper(etcd_client, cluster, card("m", files, layout_id=one), files)
        for one in layouts
    ]
    found = await kept(etcd_client, cluster, "m")
    assert found is not None
    assert [one.layout_id for one in found.cards] == layouts[-8:]
    # What was lost is written again: a piece, or everything when the lease has ended.
    await etcd_client.revoke(found.lease)
    assert await kept(etcd_client, cluster, "m") is None
    assert await keepers[3].refresh()
    again = await kept(etcd_client, cluster, "m")
    assert again is not None
    assert again.lease != found.lease
    assert [one.layout_id for one in again.cards] == [layouts[3]]
    assert await etcd_client.count(keys.tokenizer(cluster, files.digest, "m")) == 2
