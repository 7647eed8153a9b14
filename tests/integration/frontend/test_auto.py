"""Requests for `auto`: which model answers, what names it, and what is refused."""

import asyncio
import base64
import re
from io import StringIO
from typing import Any

import grpc
import httpx
import openai
import pytest
from rich.console import Console

from baton.auto.features import RequestFeatures
from baton.cli.chat import models
from baton.cli.shared.options import FrontendOptions
from baton.client import AsyncClient, BatonClientError, NotFoundError
from baton.engine.testing.random_vision import random_png
from baton.errors import BatonError, Reason
from baton.internal.v1 import cluster_pb2, router_pb2
from baton.tenancy.admin.auto import AutoAdministration
from baton.tenancy.records.auto import AutoRule, AutoRules
from baton.v1 import inference_pb2
from tests.integration.frontend.test_aliases import OTHER, two_models
from tests.support.wait import eventually

CODE = "def f(x):\n    return g(x)"


def rules_of(stage: Any) -> AutoRules:
    """Return rules by which code goes to the other model, and what is long to an unknown one."""
    return AutoRules(
        models=(stage.model, OTHER),
        rules=(
            AutoRule(name="code", models=(OTHER, stage.model), code=True),
            AutoRule(name="gone", models=("gone", OTHER), words=("gone",)),
        ),
    )


async def apply(stage: Any, record: AutoRules) -> None:
    """Set the rules, and wait until the frontend has them."""
    await AutoAdministration(stage.client, stage.cluster).set(record, missing=True)
    async with httpx.AsyncClient(base_url=stage.http_url) as http:

        async def listed() -> bool:
            found = (await http.get("/v1/models")).json()["data"]
            auto = [one for one in found if one["id"] == "auto"]
            names = [target["model"] for one in auto for target in one["targets"]]
            return names == [name for name in record.names if name != "gone"]

        await eventually(listed)


@pytest.fixture
async def two(empty_stage: Any) -> Any:
    await empty_stage.set()
    await two_models(empty_stage)
    return empty_stage


def body(prompt: Any = "abc", **fields: Any) -> dict[str, Any]:
    return {"model": "auto", "prompt": prompt, "max_tokens": 2, **fields}


async def test_rules_choose_the_model_and_all_that_names_it_says_so(two: Any) -> None:
    await apply(two, rules_of(two))
    async with (
        httpx.AsyncClient(base_url=two.http_url) as http,
        AsyncClient(two.grpc_address) as client,
    ):
        for prompt, model in (("abc", two.model), (CODE, OTHER), ("it is gone", OTHER)):
            answer = await http.post("/v1/completions", json=body(prompt))
            assert answer.json()["model"] == model
            assert answer.headers["x-baton-model"] == model
            assert answer.json()["baton"] == {"requested_model": "auto"}
            streamed = await http.post("/v1/completions", json=body(prompt, stream=True))
            assert streamed.headers["x-baton-model"] == model
            assert f'"model":"{model}"' in streamed.text
            told = await client.generate(prompt, model="auto", max_tokens=2).answer()
            assert (told.model, told.requested_model) == (model, "auto")
        many = await http.post("/v1/completions", json=body([CODE, "abc"]))
        assert (many.json()["model"], len(many.json()["choices"])) == (OTHER, 2)
        listed = (await http.get("/v1/models/auto")).json()
        targets = [one["model"] for one in listed["targets"]]
        auto = (await client.models())[-1]
        assert (listed["id"], listed["max_model_len"]) == ("auto", two.context)
        assert (auto.name, auto.context_tokens) == ("auto", two.context)
        assert (list(auto.targets), set(targets)) == (targets, {two.model, OTHER})
        assert (auto.state, auto.request_tokens) == (listed["state"], listed["request_tokens"])
        assert auto.state == "ready"
        printed = StringIO()
        await asyncio.to_thread(
            models, two.grpc_address, FrontendOptions(), Console(file=printed, width=240), False
        )
        assert re.search(rf"^auto +ready +{two.context}", printed.getvalue(), re.MULTILINE)
    openai_client = openai.AsyncOpenAI(base_url=f"{two.http_url}/v1", api_key="none")
    async with openai_client:
        message = {"role": "user", "content": CODE}
        whole = await openai_client.chat.completions.with_raw_response.create(
            model="auto",
            messages=[message],  # type: ignore[list-item]
            max_tokens=2,
        )
        assert whole.headers["x-baton-model"] == whole.parse().model == OTHER
        assert "auto" in [one.id async for one in openai_client.models.list()]


async def test_rules_change_and_go_within_a_second(two: Any) -> None:
    admin = AutoAdministration(two.client, two.cluster)
    async with httpx.AsyncClient(base_url=two.http_url) as http:
        await apply(two, AutoRules(models=(two.model,)))
        assert (await http.post("/v1/completions", json=body())).json()["model"] == two.model
        await apply(two, AutoRules(models=(OTHER,)))
        assert (await http.post("/v1/completions", json=body())).json()["model"] == OTHER
        await admin.remove()

        async def unknown() -> bool:
            answer = await http.post("/v1/completions", json=body())
            return answer.status_code == 404 and "auto' has no rules" in answer.text

        await eventually(unknown)
        assert (await http.get("/v1/models/auto")).status_code == 404


async def test_a_model_that_cannot_serve_a_request_is_left_out(two: Any) -> None:
    two.features = ("logprobs",)
    await two.add("d4", cluster_pb2.ROLE_COMBINED, model="plain")
    place = two.router.place
    two.router.place = lambda query: (
        two.place("d4") if query.context.model == "plain" else place(query)
    )
    await apply(two, AutoRules(models=("plain", OTHER)))
    async with httpx.AsyncClient(base_url=two.http_url) as http:
        for fields, model in (({}, "plain"), ({"min_p": 0.1}, OTHER)):
            answer = await http.post("/v1/completions", json=body(**fields))
            assert answer.json()["model"] == model, answer.text
        for record in (
            AutoRules(models=("plain",), max_wait_seconds=1),
            AutoRules(models=("plain",)),
        ):
            await apply(two, record)
            answer = await http.post("/v1/completions", json=body(min_p=0.1))
            assert answer.status_code == 400
            assert "min_p: not supported by the workers of model 'plain'" in answer.text
        await apply(two, AutoRules(models=(two.model, OTHER)))
        answer = await http.post("/v1/completions", json=body("a" * 5 * two.context))
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert "auto chooses for this request (no rule matches) can serve it: " in answer.text


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"n": 9999}, "n: 9999 is out of range: 1 to 128"),
        ({"prompt": [1, 2]}, "prompt is not supported: by auto, as token ids depend on"),
        ({"logit_bias": {"5": 1}}, "logit_bias is not supported: by auto, as token ids depend on"),
    ],
)
async def test_what_needs_a_model_is_refused(
    two: Any, fields: dict[str, Any], sentence: str
) -> None:
    await apply(two, rules_of(two))
    async with (
        httpx.AsyncClient(base_url=two.http_url) as http,
        AsyncClient(two.grpc_address) as client,
    ):
        answer = await http.post("/v1/completions", json=body(**fields))
        assert (answer.status_code, sentence in answer.json()["error"]["message"]) == (400, True)
        options = {name: value for name, value in fields.items() if name != "prompt"}
        if "logit_bias" in options:
            options["logit_bias"] = {5: 1.0}
        with pytest.raises(BatonClientError) as caught:
            await client.generate(
                fields.get("prompt", "abc"), model="auto", max_tokens=2, **options
            ).answer()
        assert sentence in str(caught.value)
        refused = await http.post("/v1/tokenize", json={"model": "auto", "prompt": "a"})
        assert "auto chooses a model per request" in refused.json()["error"]["message"]
    assert all(not worker.starts() for worker in two.workers)


async def test_pictures_that_no_model_takes_are_refused_by_name(two: Any) -> None:
    rule = AutoRule(name="pictures", models=(OTHER, two.model), pictures=True)
    await apply(two, AutoRules(models=(two.model,), rules=(rule,)))
    url = "data:image/png;base64," + base64.b64encode(random_png(0)).decode()
    content = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": content}]
    async with httpx.AsyncClient(base_url=two.http_url) as http:
        asked = {"model": "auto", "messages": messages}
        told = (await http.post("/v1/chat/completions", json=asked)).json()["error"]
    assert (told["code"], told["param"]) == (
        "unsupported_parameter",
        "messages[0].content[1].image_url",
    )
    assert (
        "(rule pictures) can serve it: other: messages[0].content[1].image_url" in told["message"]
    )
    part = inference_pb2.ContentPart
    message = inference_pb2.ChatMessage(role="user", parts=[part(text="x"), part(image_url=url)])
    request = inference_pb2.ChatRequest(messages=[message])
    request.context.model = "auto"
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await two.stub().Chat(request).read()
    error = BatonError.from_rpc_error(caught.value)
    assert error.message == told["message"].replace(".content[", ".parts[")
    assert all(not worker.starts() for worker in two.workers)


async def test_without_rules_auto_is_unknown(two: Any) -> None:
    async with (
        httpx.AsyncClient(base_url=two.http_url) as http,
        AsyncClient(two.grpc_address) as client,
    ):
        answer = await http.post("/v1/completions", json=body())
        assert answer.status_code == 404
        sentence = "model 'auto' has no rules in this cluster: name a model"
        assert sentence in answer.json()["error"]["message"]
        with pytest.raises(NotFoundError, match=sentence):
            await client.generate("abc", model="auto").answer()


async def test_a_model_of_the_name_comes_first(two: Any) -> None:
    await apply(two, rules_of(two))
    await two.add("d5", cluster_pb2.ROLE_COMBINED, model="auto")
    two.router.place = lambda _: two.place("d5")
    async with httpx.AsyncClient(base_url=two.http_url) as http:

        async def served() -> bool:
            answer = await http.post("/v1/completions", json=body())
            return bool(answer.json().get("model") == "auto")

        await eventually(served)
    with pytest.raises(BatonError, match="auto: is a model, adapter or alias of this cluster"):
        await AutoAdministration(two.client, two.cluster).set(rules_of(two), missing=True)


async def test_a_model_whose_queue_is_long_comes_last(two: Any) -> None:
    await apply(two, AutoRules(models=(two.model, OTHER), max_wait_seconds=2))
    async with httpx.AsyncClient(base_url=two.http_url) as http:

        async def chooses(model: str) -> bool:
            return bool((await http.post("/v1/completions", json=body())).json()["model"] == model)

        assert await chooses(two.model)
        two.router.waits = {two.model: 2.5, OTHER: 1.0}
        await eventually(lambda: chooses(OTHER))
        two.router.waits[OTHER] = 9.0  # both are busy
        await eventually(lambda: chooses(two.model))


async def test_a_model_that_would_let_a_request_wait_is_passed_over(two: Any) -> None:
    await apply(two, AutoRules(models=(two.model, OTHER), max_wait_seconds=2))
    place = two.router.place
    busy = {two.model}

    def place_other(query: router_pb2.PlaceQuery) -> router_pb2.Placement | BatonError:
        if query.context.model in busy:
            return BatonError(Reason.OVERLOADED, "scripted", retry_after=1.0)
        found: router_pb2.Placement | BatonError = place(query)
        return found

    two.router.place = place_other
    async with httpx.AsyncClient(base_url=two.http_url) as http:
        for _ in range(2):
            answer = await http.post("/v1/completions", json=body())
            assert answer.json()["model"] == OTHER, answer.text
        bounds = {one.context.model: one.max_wait_seconds for one in two.router.queries}
        assert (bounds[two.model], bounds[OTHER]) == (2, 2)
        refused = await http.post("/v1/completions", json=body(baton={"fallback": "never"}))
        assert refused.json()["error"]["code"] == "overloaded", refused.text
        assert two.router.queries[-1].context.model == two.model
        busy.add(OTHER)
        refused = await http.post("/v1/completions", json=body())
        assert refused.json()["error"]["code"] == "overloaded", refused.text
        asked = [one.context.model for one in two.router.queries[-3:]]
        assert asked == [two.model, OTHER, two.model], "the first is waited for, without a bound"
        assert two.router.queries[-1].max_wait_seconds == 0
    await two.quiet()


def by_length(features: RequestFeatures) -> str:
    """Label requests; what a test names as its classifier."""
    if "fail" in features.text:
        raise ValueError("failed")
    return "long" if len(features.text) > 5 else ""


async def test_a_classifier_labels_requests_for_rules(empty_stage: Any) -> None:
    await empty_stage.set({"auto.classifier": f"{__name__}:by_length"})
    await two_models(empty_stage)
    rule = AutoRule(name="long", models=(OTHER,), labels=("long",))
    await apply(empty_stage, AutoRules(models=(empty_stage.model,), rules=(rule,)))
    async with httpx.AsyncClient(base_url=empty_stage.http_url) as http:

        async def chooses(prompt: str, model: str) -> bool:
            answer = await http.post("/v1/completions", json=body(prompt))
            return bool(answer.json()["model"] == model)

        await eventually(lambda: chooses("long enough", OTHER))  # it may be late on a busy machine
        assert await chooses("abc", empty_stage.model)
        assert await chooses("it is to fail", empty_stage.model)
