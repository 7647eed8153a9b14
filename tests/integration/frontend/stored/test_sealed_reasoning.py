"""A client that stores nothing brings reasoning back sealed, to any frontend of its tenant."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from pydantic import SecretStr
from tokenizers import Tokenizer

from baton.tenancy.admin.tenants import Administration
from baton.worker.wire.tokenizer_files import TokenizerFiles
from tests.integration.frontend.auth.conftest import Keys
from tests.support.doubles.letters import write_model
from tests.support.state.databases import Databases
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")

THOUGHT = "Ada is é 🤖."
TEMPLATE = (
    "{% for m in messages %}{{ m.role }}:{% if m.reasoning_content %}<think>\n"
    "{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}\n{% endfor %}assistant:"
)
ANSWER = f"<think>\n{THOUGHT}\n</think>\n\nYes."
SCOPES = ("inference", "state.read", "state.write")
STATELESS: Any = {"store": False, "include": ["reasoning.encrypted_content"]}


@pytest.fixture
async def clients(
    empty_stage: Any, databases: Databases, tmp_path: Any
) -> AsyncIterator[tuple[Any, Any, Any]]:
    """Clients of one tenant at two frontends, and of another tenant."""
    import openai  # takes a second

    stage = empty_stage
    stage.model_dir = write_model(tmp_path / "thinks", TEMPLATE)
    tokenizer = Tokenizer.from_file(str(stage.model_dir / "tokenizer.json"))
    settings = {
        "auth.mode": "keys",
        "state.url": SecretStr(await databases.migrated()),
        "conversations.enabled": True,
        "conversations.statement_seconds": 20.0,
    }
    await stage.set(settings)
    for worker in stage.workers:
        worker.script.says = tokenizer.encode(ANSWER).ids
        assert worker.tokenizer == TokenizerFiles.read(stage.model_dir)
    second = await stage.services("frontend", settings, "second")
    keys = Keys(stage, Administration(stage.client, stage.cluster))
    await keys.tenant("acme")
    await keys.tenant("other")
    (_, ours), (_, theirs) = await keys.key(scopes=SCOPES), await keys.key("other", scopes=SCOPES)
    there = f"http://{second.instance.http_address}"
    async with AsyncExitStack() as stack:
        made = []
        for base, secret in ((stage.http_url, ours), (there, ours), (there, theirs)):
            client = openai.AsyncOpenAI(base_url=f"{base}/v1", api_key=secret, max_retries=0)
            made.append(await stack.enter_async_context(client))
            await eventually(lambda client=client: _has_database(client))
        yield made[0], made[1], made[2]


async def _has_database(client: Any) -> bool:
    import openai

    try:
        await client.responses.retrieve(f"resp_{0:032x}")
    except openai.NotFoundError:
        return True
    except openai.APIStatusError:
        return False
    return False


def _prompt(stage: Any) -> list[int]:
    """Return the last prompt of a prefill."""
    starts = [one for one in stage.worker("p0").starts() if one.HasField("prefill")]
    return list(starts[-1].prompt_token_ids)


async def test_reasoning_comes_back_at_another_frontend_as_the_stored_one(
    empty_stage: Any, clients: tuple[Any, Any, Any]
) -> None:
    here, there, _ = clients
    model, ask = empty_stage.model, {"role": "user", "content": "Is it Ada?"}
    stored = await here.responses.create(model=model, input=[ask])
    await there.responses.create(model=model, input="So?", previous_response_id=stored.id)
    expected = _prompt(empty_stage)
    history: list[Any] = [ask]
    answer = await here.responses.create(model=model, input=history, **STATELESS)
    async with here.responses.stream(model=model, input=history, **STATELESS) as stream:
        streamed = await stream.get_final_response()
    for one in (answer, streamed):
        reasoning, message = one.output
        assert reasoning.content[0].text == THOUGHT
        assert message.content[0].text == "Yes."
        # Codex sends back what is sealed alone; others send the item as it came.
        bare = {"type": "reasoning", "summary": [], "id": reasoning.id}
        sealed = bare | {"encrypted_content": reasoning.encrypted_content}
        for item in (sealed, reasoning.to_dict()):
            items = [*history, item, message.to_dict(), {"role": "user", "content": "So?"}]
            again = await there.responses.create(model=model, input=items, **STATELESS)
            assert _prompt(empty_stage) == expected
            assert again.usage.input_tokens == len(expected)
        assert THOUGHT not in reasoning.encrypted_content


async def test_what_is_forged_or_another_tenants_is_refused_by_its_field(
    empty_stage: Any, clients: tuple[Any, Any, Any]
) -> None:
    import openai

    here, there, other = clients
    model, ask = empty_stage.model, {"role": "user", "content": "Is it Ada?"}
    reasoning, message = (await here.responses.create(model=model, input=[ask], **STATELESS)).output
    sealed = reasoning.encrypted_content
    changed = sealed[:60] + ("A" if sealed[60] != "A" else "B") + sealed[61:]
    sentences = set()
    for client, content in ((there, changed), (there, sealed[:-9]), (other, sealed)):
        item = {"type": "reasoning", "summary": [], "encrypted_content": content}
        items = [ask, item, message.to_dict(), ask]
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model=model, input=items, **STATELESS)
        assert caught.value.param == "input[1].encrypted_content"
        sentences.add(caught.value.message)
    assert len(sentences) == 1
