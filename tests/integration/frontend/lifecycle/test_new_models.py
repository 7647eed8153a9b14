"""Models come, change and go while a frontend runs; it fetches their tokenizers from workers."""

import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest

from baton.cluster.members.discovery import FIRST_LIST_SECONDS
from baton.internal.v1 import cluster_pb2
from baton.worker.wire.tokenizer_files import TokenizerFiles
from tests.support.network.proxy import TcpProxy
from tests.support.wait import eventually

DECODE = cluster_pb2.ROLE_DECODE
LOADS = "baton_frontend_tokenizer_loads_total"


@pytest.fixture
async def front(request: pytest.FixtureRequest, empty_stage: Any) -> Any:
    """A stage with a router, no worker yet, and a frontend that waits: for .2 s, or for the
    fixture's parameter. `http` asks it."""
    await empty_stage.add("router", cluster_pb2.ROLE_ROUTER)
    empty_stage.router.place = lambda _: empty_stage.place(
        next(name for name in sorted(empty_stage.members) if name.startswith("d"))
    )
    await empty_stage.begin_frontend(
        {
            "workers.tokenizer_silence_seconds": 0.5,
            "limits.wait_for_worker_seconds": getattr(request, "param", 0.2),
        }
    )
    empty_stage.http = await empty_stage.stack.enter_async_context(
        httpx.AsyncClient(base_url=empty_stage.http_url)
    )
    return empty_stage


@pytest.fixture
def files(model_dir: Any) -> TokenizerFiles:
    return TokenizerFiles.read(model_dir)


def with_template(files: TokenizerFiles, template: str) -> TokenizerFiles:
    return replace(files, config=json.dumps({"chat_template": template}).encode())


async def listed(stage: Any) -> list[str]:
    """The models that can be asked; none while the frontend does not listen."""
    with suppress(httpx.ConnectError):
        return [one["id"] for one in (await stage.http.get("/v1/models")).json()["data"]]
    return []


async def say_hi(stage: Any, model: str = "") -> httpx.Response:
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": model or stage.model, "messages": messages, "max_tokens": 3}
    answer = await stage.http.post("/v1/chat/completions", json=body)
    assert isinstance(answer, httpx.Response)
    return answer


async def leave(stage: Any, name: str) -> None:
    await stage.members.pop(name).stack.aclose()


async def prompt(stage: Any, name: str) -> int:
    """How many tokens the prompt had that this worker was given last."""
    return len(stage.worker(name).starts()[-1].prompt_token_ids)


async def test_a_frontend_listens_once_a_model_can_be_asked(
    front: Any, files: TokenizerFiles
) -> None:
    async def refuses() -> None:
        with pytest.raises(httpx.ConnectError):
            await front.http.get("/health")

    await refuses()
    await front.add("p0", cluster_pb2.ROLE_PREFILL, with_template(files, "later"))
    await eventually(lambda: front.frontend.sample(LOADS, outcome="ok"))
    await refuses()
    await front.add("d1", DECODE, with_template(files, "later"))
    assert await eventually(lambda: listed(front)) == [front.model]
    assert (await front.http.get("/health")).json() == {"status": "ok"}
    assert (await say_hi(front)).status_code == 200
    assert await prompt(front, "d1") == len("later")


async def test_a_frontend_that_starts_without_etcd_refuses_clients_until_it_is_there(
    empty_stage: Any,
) -> None:
    async with TcpProxy(empty_stage.client.endpoints[0]) as etcd:
        await etcd.cut()
        await empty_stage.add("d0", DECODE)
        await empty_stage.begin_frontend({"etcd.endpoints": (etcd.address,)})
        async with httpx.AsyncClient(base_url=empty_stage.http_url) as http:
            empty_stage.http = http
            await asyncio.sleep(FIRST_LIST_SECONDS + 0.2)  # it goes on without the list
            assert not await listed(empty_stage)
            await etcd.mend()
            assert await eventually(lambda: listed(empty_stage)) == [empty_stage.model]
            assert (await say_hi(empty_stage)).status_code == 200


async def loading(front: Any, files: TokenizerFiles) -> Any:
    """Return a worker of the model "later", which does not send its tokenizer yet."""
    await front.add("d0", DECODE)
    await eventually(lambda: listed(front))
    member = await front.add("d1", DECODE, with_template(files, "later"), model="later")
    member.double.script.transfer.clear()
    await eventually(lambda: member.double.transfers)
    return member


async def test_requests_for_a_model_that_loads_for_long_are_refused(
    front: Any, files: TokenizerFiles
) -> None:
    await loading(front, files)
    refused = await say_hi(front, "later")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_loading")
    assert refused.headers["retry-after"] == "1"
    assert refused.json()["error"]["message"].endswith("none appeared within 0.2 s")
    assert await listed(front) == [front.model]


@pytest.mark.parametrize("front", [30.0], indirect=True)
async def test_requests_wait_for_a_model_that_is_loading(front: Any, files: TokenizerFiles) -> None:
    member = await loading(front, files)
    front.router.place = lambda _: front.place("d1")
    waiting = asyncio.create_task(say_hi(front, "later"))
    await eventually(lambda: front.frontend.sample("baton_frontend_requests_waiting"))
    member.double.script.transfer.set()
    assert (await waiting).status_code == 200
    assert await listed(front) == sorted([front.model, "later"])


async def test_a_worker_that_dies_in_the_transfer_is_replaced_by_another(
    front: Any, files: TokenizerFiles
) -> None:
    for name in ("d0", "d1"):
        member = await front.add(name, DECODE)
        member.double.script.transfer.clear()
    workers = [front.worker("d0"), front.worker("d1")]
    await eventually(lambda: any(worker.transfers for worker in workers))
    asked, other = sorted(workers, key=lambda worker: -worker.transfers)
    assert other.transfers == 0
    other.script.transfer.set()
    await front.members[asked.name].crash()
    await eventually(lambda: listed(front))
    assert other.transfers == 1
    assert front.frontend.sample(LOADS, outcome="failed") == 1
    assert front.frontend.sample(LOADS, outcome="ok") == 1


async def test_a_worker_that_sends_nothing_is_given_up(front: Any) -> None:
    member = await front.add("d0", DECODE)
    member.double.script.transfer.clear()
    await eventually(lambda: front.frontend.sample(LOADS, outcome="failed"))
    member.double.script.transfer.set()
    await eventually(lambda: listed(front))


async def test_files_that_are_not_those_of_the_card_are_never_used(
    front: Any, files: TokenizerFiles
) -> None:
    member = await front.add("d0", DECODE)
    await eventually(lambda: listed(front))
    await leave(front, "d0")
    promised = with_template(files, "promised")
    member = await front.add("d1", DECODE, promised)
    member.double.tokenizer = with_template(files, "stranger")
    await eventually(lambda: front.frontend.sample(LOADS, outcome="failed"))
    assert (await say_hi(front)).json()["error"]["code"] == "model_loading"
    member.double.tokenizer = promised
    await eventually(lambda: listed(front))
    assert (await say_hi(front)).status_code == 200
    assert await prompt(front, "d1") == len("promised")


@pytest.mark.parametrize(
    "damage",
    [
        {"tokenizer": b"no json"},
        {"tokenizer": b'{"model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}'},
        {"tokenizer": b"\xff"},
        {"config": b"[]"},
        {"chat_template": b"\xff"},
    ],
)
async def test_a_damaged_tokenizer_harms_only_its_own_model(
    front: Any, files: TokenizerFiles, damage: dict[str, bytes]
) -> None:
    await front.add("d0", DECODE)
    member = await front.add("broken", DECODE, replace(files, **damage), model="org/broken")
    await eventually(lambda: front.frontend.sample(LOADS, outcome="refused"))
    await eventually(lambda: listed(front))
    refused = await say_hi(front, "org/broken")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unavailable")
    assert "cannot be used" in refused.json()["error"]["message"]
    assert await listed(front) == [front.model]
    assert (await say_hi(front)).status_code == 200
    assert member.double.transfers == 1, "it is not fetched again"


async def test_a_model_comes_back_with_another_tokenizer(front: Any, files: TokenizerFiles) -> None:
    for name, template in (("d0", "one"), ("d1", "another")):
        await front.add(name, DECODE, with_template(files, template))
        await eventually(lambda: listed(front))
        assert (await say_hi(front)).status_code == 200
        assert await prompt(front, name) == len(template)
        await leave(front, name)
        await eventually(lambda: _unlisted(front))
        assert (await say_hi(front)).json()["error"]["code"] == "no_worker"


async def _unlisted(stage: Any) -> bool:
    return not await listed(stage)


async def test_while_a_model_has_two_tokenizers_each_request_keeps_to_one(
    front: Any, files: TokenizerFiles
) -> None:
    kinds = {"d0": files, "d1": with_template(files, "upgraded")}
    for name, kind in kinds.items():
        await front.add(name, DECODE, kind)
    await eventually(lambda: front.frontend.sample(LOADS, outcome="ok") == 2)
    await eventually(lambda: listed(front))
    digests = {kind.digest: name for name, kind in kinds.items()}
    front.router.place = lambda query: front.place(digests[query.tokenizer_digest])
    lengths = {"d0": len("user:hi\nassistant:"), "d1": len("upgraded")}

    async def served_by() -> str:
        before = {name: len(front.worker(name).starts()) for name in kinds}
        assert (await say_hi(front)).status_code == 200
        (name,) = (one for one in kinds if len(front.worker(one).starts()) > before[one])
        assert await prompt(front, name) == lengths[name]
        return name

    first = await served_by()
    assert await served_by() == first
    other = next(name for name in kinds if name != first)
    await front.add("d2", DECODE, kinds[other])
    front.router.place = lambda query: front.place(digests[query.tokenizer_digest])
    await eventually(lambda: _is(served_by, other))


async def _is(found: Any, wanted: str) -> bool:
    return bool(await found() == wanted)


async def test_models_with_the_same_files_share_one_tokenizer(front: Any) -> None:
    await front.add("d0", DECODE)
    await eventually(lambda: listed(front))
    member = await front.add("d1", DECODE, model="org/alias")
    await eventually(lambda: _listed_both(front))
    assert member.double.transfers == 0
    assert front.frontend.sample(LOADS, outcome="ok") == 1
    assert front.frontend.sample("baton_frontend_models") == 2


async def _listed_both(stage: Any) -> bool:
    return len(await listed(stage)) == 2
