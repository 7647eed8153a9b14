"""Requests by an alias: what answers, and what it means from when on."""

from typing import Any

import httpx
import pytest

from baton.client import AsyncClient, NotFoundError
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.tenancy.admin.aliases import AliasAdministration
from baton.tenancy.records.aliases import AliasTarget
from tests.support.wait import eventually

OTHER = "other"


async def two_models(stage: Any) -> None:
    """Serve another model next to the stage's, on workers of its own."""
    await stage.add("p2", cluster_pb2.ROLE_PREFILL, model=OTHER)
    await stage.add("d2", cluster_pb2.ROLE_DECODE, model=OTHER)
    place = stage.router.place

    def by_model(query: router_pb2.PlaceQuery) -> router_pb2.Placement:
        if query.context.model == OTHER:
            return stage.place("d2", None if query.output_tokens else "p2")
        return place(query)

    stage.router.place = by_model


@pytest.fixture
async def two(empty_stage: Any) -> Any:
    await empty_stage.set()
    await two_models(empty_stage)
    return empty_stage


async def point(stage: Any, alias: str, *targets: str, **weights: int) -> None:
    admin = AliasAdministration(stage.client, stage.cluster)
    wanted = [AliasTarget(one) for one in targets]
    wanted += [AliasTarget(model, weight) for model, weight in weights.items()]
    await eventually(lambda: _pointed(admin, alias, tuple(wanted)))


async def _pointed(
    admin: AliasAdministration, alias: str, targets: tuple[AliasTarget, ...]
) -> bool:
    try:
        await admin.point(alias, targets)
    except BatonError as error:
        if "no model or adapter of this cluster" in error.message:
            return False  # the worker registers it in a moment
        raise
    return True


async def completed(http: httpx.AsyncClient, model: str, prompt: str = "abc") -> str:
    """Return the model that answers a request."""
    body = {"model": model, "prompt": prompt, "max_tokens": 2}
    answer = await http.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["model"])


async def test_an_alias_means_a_model_says_which_and_moves(two: Any) -> None:
    async with (
        httpx.AsyncClient(base_url=two.http_url) as http,
        AsyncClient(two.grpc_address) as client,
    ):

        async def means(model: str) -> bool:
            body = {"model": "gpt", "prompt": "abc", "max_tokens": 2}
            answer = await http.post("/v1/completions", json=body)
            return answer.status_code == 200 and answer.json()["model"] == model

        with pytest.raises(NotFoundError):
            await client.generate("abc", model="gpt", max_tokens=2).answer()
        await point(two, "gpt", two.model)
        await eventually(lambda: means(two.model))
        answer = await client.generate("abc", model="gpt", max_tokens=2).answer()
        assert answer.model == two.model
        counted = await http.post("/v1/tokenize", json={"model": "gpt", "prompt": "ab"})
        assert counted.json()["count"] == 2

        listed = {one["id"]: one for one in (await http.get("/v1/models")).json()["data"]}
        assert listed["gpt"]["targets"] == [{"model": two.model, "weight": 1}]
        assert listed["gpt"]["max_model_len"] == two.context
        assert (await http.get("/v1/models/gpt")).json() == listed["gpt"]
        models = {one.name: one.aliases for one in await client.models()}
        assert models[two.model] == ("gpt",)

        await point(two, "gpt", OTHER)
        await eventually(lambda: means(OTHER))
        assert {one.context.model for one in two.worker("d2").starts()} == {OTHER}
        await AliasAdministration(two.client, two.cluster).remove("gpt")

        async def unknown() -> bool:
            body = {"model": "gpt", "prompt": "abc", "max_tokens": 2}
            return (await http.post("/v1/completions", json=body)).status_code == 404

        await eventually(unknown)


async def test_a_part_of_the_conversations_goes_to_each_target(two: Any) -> None:
    await point(two, "split", **{two.model: 1, OTHER: 1})
    async with httpx.AsyncClient(base_url=two.http_url) as http:

        async def listed() -> bool:
            found = (await http.get("/v1/models")).json()["data"]
            return "split" in {one["id"] for one in found}

        await eventually(listed)
        answered = {}
        for number in range(24):
            messages = [{"role": "user", "content": f"question {number}"}]
            for _ in range(2):  # its second turn repeats the first
                body = {"model": "split", "messages": messages, "max_tokens": 2}
                answer = (await http.post("/v1/chat/completions", json=body)).json()
                assert answered.setdefault(number, answer["model"]) == answer["model"]
                messages += [answer["choices"][0]["message"], {"role": "user", "content": "go on"}]
        assert set(answered.values()) == {two.model, OTHER}


async def test_a_model_of_the_name_comes_before_the_alias(two: Any) -> None:
    admin = AliasAdministration(two.client, two.cluster)
    with pytest.raises(BatonError, match="other is a model or adapter of this cluster") as caught:
        await _pointed(admin, OTHER, (AliasTarget(two.model),))
    assert caught.value.reason is Reason.INVALID_FIELD
    with pytest.raises(BatonError, match="'nobody' is no model or adapter of this cluster"):
        await admin.point("gpt", (AliasTarget("nobody"),))
    await admin.point("later", (AliasTarget("nobody"),), missing=True)
    await two.add("p3", cluster_pb2.ROLE_PREFILL, model="later")
    await two.add("d3", cluster_pb2.ROLE_DECODE, model="later")
    place = two.router.place
    two.router.place = lambda query: (
        two.place("d3", None if query.output_tokens else "p3")
        if query.context.model == "later"
        else place(query)
    )
    async with httpx.AsyncClient(base_url=two.http_url) as http:

        async def served() -> bool:
            body = {"model": "later", "prompt": "abc", "max_tokens": 2}
            answer = await http.post("/v1/completions", json=body)
            return answer.status_code == 200 and answer.json()["model"] == "later"

        await eventually(served)
