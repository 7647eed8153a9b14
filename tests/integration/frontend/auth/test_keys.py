"""With API keys: who is refused, how, and what a key decides; the same on HTTP and gRPC."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from time import time
from typing import Any

import grpc
import httpx
import pytest

from baton.client import AsyncClient, AuthenticationError
from baton.cluster import keys as names
from baton.errors import BatonError, Reason
from baton.internal.v1.cluster_pb2 import TenantPolicy
from baton.tenancy.directory import directory as sentences
from baton.tenancy.records.secret import new_secret
from baton.tenancy.records.tenants import Tier
from baton.v1 import common_pb2, inference_pb2
from services.frontend.admin.routes import OrganizationRoutes
from services.frontend.openai.batches.handlers import BatchHandlers
from services.frontend.openai.completions.stored import StoredCompletions
from services.frontend.openai.conversations.handlers import ConversationHandlers
from services.frontend.openai.files.handlers import FileHandlers
from services.frontend.openai.handlers import Handlers
from services.frontend.openai.responses.compaction.handler import CompactHandler
from services.frontend.openai.responses.handler import ResponsesHandlers
from services.frontend.openai.responses.stored import StoredResponses
from services.frontend.openai.webhooks.handlers import WebhookHandlers
from services.frontend.routes import route_table
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.support.clock import DEADLINE_SECONDS, within
from tests.support.wait import eventually

PREMIUM, INTERACTIVE = common_pb2.PRIORITY_CLASS_PREMIUM, common_pb2.PRIORITY_CLASS_INTERACTIVE


@dataclass(frozen=True)
class Said:
    """What a client was told, whatever it asked by."""

    reason: Reason
    message: str
    field: str | None


def chat(stage: Any, **context: Any) -> inference_pb2.ChatRequest:
    request = inference_pb2.ChatRequest()
    request.context.model = context.pop("model", stage.model)
    for name, value in context.items():
        setattr(request.context, name, value)
    request.messages.add(role="user", content="hi")
    request.sampling.max_tokens = 3
    return request


async def over_http(stage: Any, headers: dict[str, str], **context: Any) -> Said | None:
    body = {"model": context.get("adapter") or context.get("model", stage.model), "max_tokens": 3}
    body |= {name: value for name, value in context.items() if name == "tenant"}
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        answer = await client.post(
            "/v1/chat/completions",
            json=body | {"messages": [{"role": "user", "content": "hi"}]},
            headers=headers,
        )
    if answer.status_code == 200:
        return None
    told = answer.json()["error"]
    reason = next(one for one in Reason if one.openai_code == told["code"])
    assert (answer.status_code, told["type"]) == (reason.http_status, reason.openai_type)
    assert (answer.headers.get("www-authenticate") == "Bearer") == (answer.status_code == 401)
    return Said(reason, told["message"], told["param"])


async def over_grpc(stage: Any, method: str, headers: dict[str, str], **context: Any) -> Any:
    stub, metadata = stage.stub(), tuple(headers.items())
    request: Any = chat(stage, **context)
    try:
        if method == "Session":
            call = stub.Session(metadata=metadata, timeout=DEADLINE_SECONDS)
            await call.read()
            start = inference_pb2.SessionStart(id=1, chat=request)
            await call.write(inference_pb2.SessionRequest(starts=[start]))
            await call.done_writing()
            while (said := await call.read()) is not grpc.aio.EOF:
                for event in said.events:
                    if event.HasField("error"):
                        raise BatonError.from_status(event.error)
        elif method == "Chat":
            async for _ in stub.Chat(request, metadata=metadata, timeout=DEADLINE_SECONDS):
                pass
        elif method == "Tokenize":
            asked = inference_pb2.TokenizeRequest(model=request.context.model, text="hi")
            await stub.Tokenize(asked, metadata=metadata, timeout=DEADLINE_SECONDS)
        elif method == "Detokenize":
            text = inference_pb2.DetokenizeRequest(model=request.context.model, token_ids=[1])
            await stub.Detokenize(text, metadata=metadata, timeout=DEADLINE_SECONDS)
        else:
            await stub.ListModels(
                inference_pb2.ListModelsRequest(), metadata=metadata, timeout=DEADLINE_SECONDS
            )
    except grpc.aio.AioRpcError as failure:
        error = BatonError.from_rpc_error(failure)
    except BatonError as failure:
        error = failure
    else:
        return None
    return Said(error.reason, error.message, error.field)


async def everywhere(stage: Any, headers: dict[str, str], **context: Any) -> Said | None:
    """Ask in every way; return what all of them said."""
    said = [await over_http(stage, headers, **context)]
    said += [await over_grpc(stage, method, headers, **context) for method in ("Chat", "Session")]
    if not context:
        for method in ("Tokenize", "Detokenize", "ListModels"):
            said.append(await over_grpc(stage, method, headers))
    assert len(set(said)) == 1, said
    return said[0]


async def test_who_is_refused_and_how(keys: Keys) -> None:
    stage, admin = keys.stage, keys.admin
    _, good = await keys.key()
    assert await everywhere(stage, bearer(good)) is None
    invalid, denied = Reason.INVALID_API_KEY, Reason.PERMISSION_DENIED
    for value in ("", "Bearer", "Basic eA==", good):
        headers = {"authorization": value} if value else {}
        assert await everywhere(stage, headers) == Said(invalid, sentences.NO_KEY, None)
    unknown = Said(invalid, sentences.UNKNOWN, None)
    last = "A" if good[-1] != "A" else "B"
    for secret in (new_secret(), good[:-1] + last, "sk-other", good + "A" * 4096, "A" * 40_000):
        assert await everywhere(stage, bearer(secret)) == unknown
    revoked_id, revoked = await keys.key()
    # It may have expired before it is known.
    project = await admin.find_project("acme", "default")
    _, expired = await admin.create_key(project, expires_in_seconds=1)
    await admin.revoke_key(revoked_id)
    for secret, sentence in ((revoked, sentences.REVOKED), (expired, sentences.EXPIRED)):
        expected = Said(invalid, sentence, None)

        async def told(secret: str = secret, expected: Said = expected) -> bool:
            return await over_http(stage, bearer(secret)) == expected

        await eventually(told)
        assert await everywhere(stage, bearer(secret)) == expected
    _, reader = await keys.key(scopes=("usage",))
    said = await everywhere(stage, bearer(reader))
    assert said is not None
    assert (said.reason, "'inference'" in said.message) == (denied, True)
    for field in ("openai-organization", "openai-project"):
        said = await everywhere(stage, bearer(good) | {field: "other"})
        assert said is not None
        assert (said.reason, said.field) == (denied, field)
    mine = {"openai-organization": "acme", "openai-project": "default"}
    assert await everywhere(stage, bearer(good) | mine) is None
    await keys.tenant("other")
    said = await everywhere(stage, bearer(good), tenant="other")
    assert said is not None
    assert (said.reason, said.field) == (denied, "tenant")
    assert await everywhere(stage, bearer(good), tenant="acme") is None
    assert {start.context.tenant for worker in stage.workers for start in worker.starts()} == {
        "acme"
    }
    await stage.quiet()


async def test_what_ends_with_its_owner_says_so(keys: Keys) -> None:
    stage, admin = keys.stage, keys.admin
    project = await admin.create_project("acme", "short-lived")
    account = await admin.create_account(project, "a")
    _, owned = await admin.create_key(project, service_account=account.id)
    _, archived = await admin.create_key(await admin.create_project("acme", "archived"))
    await keys.tenant("gone")
    _, disabled = await keys.key("gone")
    await admin.delete_account(project, account.id)
    await admin.archive_project("acme", "archived")
    await admin.update_tenant("gone", disabled=True)
    for secret, sentence in (
        (owned, sentences.DELETED),
        (archived, sentences.ARCHIVED),
        (disabled, sentences.DISABLED),
    ):
        expected = Said(Reason.INVALID_API_KEY, sentence, None)
        async with within(1):
            while await over_http(stage, bearer(secret)) != expected:
                await asyncio.sleep(0.01)
        assert await everywhere(stage, bearer(secret)) == expected


async def test_a_key_is_held_to_its_models(keys: Keys) -> None:
    stage = keys.stage
    _, free = await keys.key()
    _, bound = await keys.key(models=("other", "mine"))
    said = await everywhere(stage, bearer(bound), model=stage.model)
    assert said is not None
    assert (said.reason, said.field) == (Reason.MODEL_NOT_ALLOWED, "model")
    nowhere = await everywhere(stage, bearer(bound), model="nowhere")
    assert nowhere is not None
    assert nowhere.message == said.message.replace(stage.model, "nowhere")
    listed = inference_pb2.ListModelsRequest()
    async with httpx.AsyncClient(base_url=stage.http_url) as client:
        for secret, models in ((free, [stage.model]), (bound, [])):
            answer = await client.get("/v1/models", headers=bearer(secret))
            assert [one["id"] for one in answer.json()["data"]] == models
            metadata = tuple(bearer(secret).items())
            found = await stage.stub().ListModels(listed, metadata=metadata)
            assert [one.name for one in found.models] == models
        answer = await client.get(f"/v1/models/{stage.model}", headers=bearer(bound))
        assert answer.status_code == 403


async def test_nothing_but_health_is_answered_without_a_key(keys: Keys) -> None:
    table = route_table(
        Handlers.__new__(Handlers),
        ResponsesHandlers.__new__(ResponsesHandlers),
        CompactHandler.__new__(CompactHandler),
        StoredResponses(None),
        ConversationHandlers.__new__(ConversationHandlers),
        StoredCompletions.__new__(StoredCompletions),
        FileHandlers(None),
        BatchHandlers.__new__(BatchHandlers),
        WebhookHandlers.__new__(WebhookHandlers),
        OrganizationRoutes.__new__(OrganizationRoutes),
        metrics=True,
    )
    async with httpx.AsyncClient(base_url=keys.stage.http_url) as client:
        answers = {
            (route.method, route.path): (await client.request(route.method, route.path)).status_code
            for route in table
        }
        assert (await client.get("/nothing")).status_code == 404
    paths = ("/health", "/health/live", "/health/ready")
    # Without public.metrics there is no such route.
    others = dict.fromkeys([("GET", path) for path in paths], 200) | {("GET", "/metrics"): 404}
    assert answers == dict.fromkeys(answers, 401) | others
    assert {(route.method, route.path) for route in table if not route.needs} == {
        ("GET", path) for path in paths
    }
    service = inference_pb2.DESCRIPTOR.services_by_name["InferenceService"]
    stub = keys.stage.stub()
    for method in service.methods:
        message = getattr(inference_pb2, method.input_type.name)()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            if method.name == "Session":
                await stub.Session().read()
            elif method.name in ("Generate", "Chat"):
                await getattr(stub, method.name)(message).read()
            else:
                await getattr(stub, method.name)(message)
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED, method.name


async def test_a_refusal_does_not_wait_for_the_body(keys: Keys) -> None:
    address = keys.stage.http_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(*address)
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{"
    writer.write(head.encode())
    async with within(1):
        assert b" 401 " in await reader.readline()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def test_the_class_of_a_request_is_capped_by_the_tier(keys: Keys) -> None:
    stage = keys.stage
    await keys.tenant("free", Tier.FREE)
    _, paid = await keys.key()
    _, free = await keys.key("free")
    for secret, seen in ((paid, PREMIUM), (free, INTERACTIVE)):
        stage.router.queries.clear()
        assert await over_grpc(stage, "Chat", bearer(secret), priority=PREMIUM) is None
        assert [query.context.priority for query in stage.router.queries] == [seen]


async def test_two_tenants_share_no_keys_of_blocks(keys: Keys) -> None:
    stage = keys.stage
    await keys.tenant("other")
    secrets = [(await keys.key(name))[1] for name in ("acme", "acme", "other")]

    async def chains(secret: str) -> bytes:
        stage.router.queries.clear()
        request = chat(stage)
        request.messages[0].content = "the same words of both, longer than one block of tokens"
        async for _ in stage.stub().Chat(request, metadata=tuple(bearer(secret).items())):
            pass
        (query,) = stage.router.queries
        return b"".join(chain.SerializeToString() for chain in query.chains)

    mine, mine_again, others = [await chains(secret) for secret in secrets]
    assert mine == mine_again != others
    # A salt that is replaced is in force at once, too.
    policy = TenantPolicy(name="acme", cache_salt=b"n" * 32)
    await stage.client.put(names.tenant(stage.cluster, "acme"), names.encode(policy))

    async def replaced() -> bool:
        return await chains(secrets[0]) not in (mine, others)

    async with within(1):
        await eventually(replaced)


async def test_a_session_refuses_what_begins_after_its_key_was_revoked(keys: Keys) -> None:
    stage = keys.stage
    ident, secret = await keys.key()
    stage.worker("d0").script.step_seconds = 0.05
    call = stage.stub().Session(metadata=tuple(bearer(secret).items()), timeout=30)
    await call.read()
    long = chat(stage)
    long.sampling.max_tokens = 30
    start = inference_pb2.SessionStart(id=1, chat=long)
    await call.write(inference_pb2.SessionRequest(starts=[start]))
    await call.read()
    await keys.admin.revoke_key(ident)
    async with within(1):
        await eventually(lambda: over_http(stage, bearer(secret)))
    second = inference_pb2.SessionStart(id=2, chat=chat(stage))
    await call.write(inference_pb2.SessionRequest(starts=[second]))
    await call.done_writing()
    ends: dict[int, str] = {}
    while (said := await call.read()) is not grpc.aio.EOF:
        for event in said.events:
            if event.HasField("error"):
                ends[event.id] = BatonError.from_status(event.error).message
            elif event.HasField("finished"):
                ends[event.id] = "finished"
    assert ends == {1: "finished", 2: sentences.REVOKED}


async def test_last_use_is_noted(keys: Keys) -> None:
    ident, _ = await keys.key()
    await keys.stage.frontend.stop()
    used = (await keys.admin.last_uses())[ident]
    assert used % 60 == 0
    assert 0 <= time() - used < 180


async def test_the_python_client_shows_its_key_on_calls_and_sessions(keys: Keys) -> None:
    stage = keys.stage
    _, good = await keys.key()

    async def ask(client: AsyncClient) -> str:
        stream = client.chat("hi", model=stage.model, max_tokens=3)
        return "".join([text async for text in stream.iter_text()])

    async with AsyncClient(stage.grpc_address, api_key=good) as client:
        texts = await asyncio.gather(*(ask(client) for _ in range(6)))
        assert texts == [stage.said(0, 3)] * 6
        assert [model.name for model in await client.models()] == [stage.model]
        assert (await client.tokenize("hi", model=stage.model)).token_ids
    async with AsyncClient(stage.grpc_address, api_key=new_secret()) as client:
        refused = await asyncio.gather(*(ask(client) for _ in range(6)), return_exceptions=True)
    assert {type(one) for one in refused} == {AuthenticationError}
