"""Any OpenAI client works by changing its base URL: the openai package does.

What holds for a model of workers holds for a provider's: the frontend is its own upstream.
"""

from typing import TYPE_CHECKING, Any

import pytest

from baton.errors import BatonError, Reason
from baton.tenancy.admin.providers import ProviderAdministration
from baton.tenancy.records.providers import Provider, ProviderModel
from tests.support.wait import eventually

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.xdist_group("openai")


PROVIDED = "at-provider"


@pytest.fixture
async def stage(empty_stage: Any) -> Any:
    """A stage that was set, whose frontend may reach itself."""
    await empty_stage.set({"providers.allowed_networks": "127.0.0.0/8"})
    return empty_stage


@pytest.fixture(params=["of workers", "of a provider"])
async def model(request: pytest.FixtureRequest, stage: Any, client: "openai.AsyncOpenAI") -> str:
    """The model, of the workers themselves and as one of a provider."""
    if request.param == "of workers":
        return str(stage.model)
    provided = ProviderModel(
        name=PROVIDED, upstream=stage.model, context_tokens=stage.context, output_tokens=50
    )
    url = f"{stage.http_url}/v1"
    record = Provider(id="itself", url=url, http=True, models=(provided,))
    await ProviderAdministration(stage.client, stage.cluster).set(record)

    async def listed() -> bool:
        return PROVIDED in [one.id async for one in client.models.list()]

    await eventually(listed)
    return PROVIDED


@pytest.fixture
async def client(stage: Any) -> Any:
    import openai  # takes a second

    url = f"{stage.http_url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


async def test_chat(stage: Any, client: "openai.AsyncOpenAI", model: str) -> None:
    messages: Any = [{"role": "user", "content": "hi" * 11}]
    answer = await client.chat.completions.create(
        model=model, messages=messages, max_completion_tokens=5
    )
    assert answer.model == model
    assert answer.choices[0].message.content == stage.said(0, 5)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 32
    stream = await client.chat.completions.create(
        model=model,
        messages=messages,
        max_completion_tokens=5,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == stage.said(0, 5)
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 43


async def test_completions(stage: Any, client: "openai.AsyncOpenAI") -> None:
    answer = await client.completions.create(model=stage.model, prompt=["a", "b"], max_tokens=4)
    assert [choice.text for choice in answer.choices] == [stage.said(0, 4)] * 2
    stream = await client.completions.create(
        model=stage.model, prompt="a", max_tokens=4, stream=True
    )
    assert "".join([chunk.choices[0].text async for chunk in stream]) == stage.said(0, 4)


async def test_models(stage: Any, client: "openai.AsyncOpenAI") -> None:
    assert [model.id async for model in client.models.list()] == [stage.model]
    assert (await client.models.retrieve(stage.model)).owned_by == "baton"


async def test_errors_are_of_its_own_kinds(
    stage: Any, client: "openai.AsyncOpenAI", model: str
) -> None:
    import openai

    messages: Any = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.NotFoundError):
        await client.chat.completions.create(model="nobody", messages=messages)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.chat.completions.create(model=model, messages=messages, temperature=3.0)
    assert caught.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as caught:
        too_many = stage.context + 1
        await client.chat.completions.create(model=model, messages=messages, max_tokens=too_many)
    assert caught.value.code == "context_length_exceeded"


async def test_errors_of_workers(stage: Any, client: "openai.AsyncOpenAI") -> None:
    import openai

    messages: Any = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.BadRequestError) as caught:
        await client.completions.create(model=stage.model, prompt=[1] * stage.context)
    assert caught.value.code == "context_length_exceeded"
    for worker in stage.workers:
        worker.script.fail = BatonError(Reason.WORKER_LOST, "gone")
    with pytest.raises(openai.APIError) as failed:
        stream = await client.chat.completions.create(
            model=stage.model, messages=messages, stream=True
        )
        assert [chunk async for chunk in stream]
    assert failed.value.code == "worker_lost"
