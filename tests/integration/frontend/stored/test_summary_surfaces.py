"""Summaries over gRPC are those over HTTP: of messages in conversations, with the same errors."""

from functools import partial
from typing import Any

import grpc
import pytest

from baton.client import ApiError
from baton.rpc.channels import open_channel
from baton.tenancy.admin.providers import ProviderAdministration
from baton.tenancy.records.providers import Provider, ProviderModel
from baton.v1 import conversations_pb2 as pb
from baton.v1.conversations_pb2_grpc import ConversationServiceStub
from tests.integration.frontend.stored.test_summaries import THRESHOLD, WORDS, rows
from tests.support.engine.model import MODEL
from tests.support.state.frontends import Frontends
from tests.support.wait import eventually

pytestmark = pytest.mark.xdist_group("openai")

FEW: Any = {"model": MODEL, "max_tokens": 8, "temperature": 0}
HEADER = "x-baton-truncated"


async def test_a_summary_takes_the_place_of_the_oldest_messages(frontends: Frontends) -> None:
    ours, http = frontends.grpc[0].conversations, frontends.http[1]
    made = await ours.create()
    managed = FEW | {"compact_threshold": THRESHOLD}
    for number in range(20):
        usage = (await ours.send(made.id, f"{number} {WORDS}", **managed).answer()).usage
        if usage.prompt_tokens + usage.output_tokens > THRESHOLD:
            break

    async def written() -> bool:
        async with rows(frontends) as connection:
            return bool(await connection.fetch("select 1 from compactions where body is not null"))

    await eventually(written)
    channel = open_channel(frontends.cluster.frontend.address)
    request = pb.SendMessageRequest(conversation_id=made.id, content="So?", compact_threshold=0)
    request.context.model = MODEL
    request.sampling.max_tokens = 4
    call: Any = ConversationServiceStub(channel).SendMessage(request)
    events = [event async for event in call]
    told = dict(await call.trailing_metadata())
    await channel.close(None)
    ident = events[0].started.response_id
    stored = await ours.get_response(ident)
    (one,) = stored["input_transformations"]
    assert (one["type"], one["summary"]) == ("compaction", True)
    assert stored["usage"]["input_tokens"] < usage.prompt_tokens
    fields = {"model": MODEL, "content": "So?", "max_output_tokens": 4}
    fields["context_management"] = [{"type": "compaction"}]
    same = await http.post(f"/v1/conversations/{made.id}/messages", json=fields)
    assert same.headers[HEADER] == told[HEADER]
    assert same.json()["input_transformations"] == [one]
    # All that was said stays, and a message that does not ask for summaries sees it.
    whole = ours.send(made.id, "So?", **FEW)
    assert (await whole.answer()).usage.prompt_tokens > THRESHOLD


async def test_what_is_refused_is_refused_alike(frontends: Frontends) -> None:
    cluster, ours = frontends.cluster, frontends.grpc[0].conversations
    gpt = ProviderModel(name="gpt", context_tokens=8000, output_tokens=1000, price="1/1/5")
    record = Provider(id="acme", url="https://acme.example/v1", models=(gpt,))
    await ProviderAdministration(cluster.etcd, cluster.name).set(record)
    made = await ours.create()
    for model, threshold, field in (
        (MODEL, 511, "context_management[0].compact_threshold"),
        (MODEL, -1, "context_management[0].compact_threshold"),
        ("gpt", 600, "context_management"),
    ):
        managed = [{"type": "compaction", "compact_threshold": threshold}]
        body = {"model": model, "context_management": managed}

        async def refused(path: str, body: Any) -> Any:
            answer = await frontends.http[0].post(f"/v1/{path}", json=body)
            return answer if answer.status_code == 400 else None  # 404 until the model is known

        path = f"conversations/{made.id}/messages"
        answer: Any = await eventually(partial(refused, path, body | {"content": "hi"}))
        error = answer.json()["error"]
        assert error["param"] == field
        with pytest.raises(ApiError) as caught:
            await ours.send(made.id, "hi", model=model, compact_threshold=threshold).answer()
        assert caught.value.code is grpc.StatusCode.INVALID_ARGUMENT
        assert (caught.value.message, caught.value.field) == (error["message"], field)
        answer = await refused("responses", body | {"input": "hi"})
        assert answer.json()["error"] == error
    assert (await ours.list_items(made.id)).items == ()
