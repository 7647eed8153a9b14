"""Limits of keys: told alike on HTTP and gRPC, and given back however a request ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
import pytest

from baton.errors import BatonError, QuotaViolation, Reason
from baton.tenancy.limits.spec import LimitId, Measure, Subject
from baton.tenancy.records.tenants import Tier
from baton.v1 import inference_pb2
from tests.integration.frontend.auth.conftest import Keys, bearer
from tests.integration.frontend.auth.test_keys import chat, over_grpc, over_http
from tests.support.clock import Stopwatch, within
from tests.support.wait import eventually

PROMPT = len("user:hi\nassistant:")
OUTPUT = 3
"""What `chat` asks for."""


async def limited(keys: Keys, name: str = "small", **limits: int) -> str:
    """Return the secret of a key whose tenant has these limits."""
    await keys.admin.create_tenant(name, Tier.PRO, **limits)
    return (await keys.key(name))[1]


async def post(keys: Keys, secret: str, **body: Any) -> httpx.Response:
    asked = {"model": keys.stage.model, "messages": [{"role": "user", "content": "hi"}]}
    async with httpx.AsyncClient(base_url=keys.stage.http_url) as client:
        sent = {**asked, "max_tokens": OUTPUT, **body}
        return await client.post("/v1/chat/completions", json=sent, headers=bearer(secret))


def refusals(keys: Keys, limit: str, subject: str) -> float:
    name = "baton_frontend_limit_refusals_total"
    found: float = keys.stage.frontend.sample(name, limit=limit, subject=subject)
    return found


async def test_a_limit_that_is_reached_is_told_alike_everywhere(keys: Keys) -> None:
    secret = await limited(keys, requests_per_minute=2)
    first = await post(keys, secret)
    assert (first.status_code, first.headers["x-ratelimit-limit-requests"]) == (200, "2")
    assert first.headers["x-ratelimit-remaining-requests"] == "1"
    assert "x-ratelimit-limit-tokens" not in first.headers
    assert (await post(keys, secret, stream=True)).headers["x-ratelimit-remaining-requests"] == "0"
    refused = await post(keys, secret)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert 1 <= int(refused.headers["retry-after-ms"]) <= 30_000
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
    told = refused.json()["error"]
    sentence = "tenant 'small' is limited to 2 requests per minute"
    assert (told["message"], told["type"], told["code"]) == (
        sentence,
        "rate_limit_error",
        "rate_limit_exceeded",
    )
    said = await over_http(keys.stage, bearer(secret))
    assert said is not None
    assert (said.reason, said.message) == (Reason.RATE_LIMITED, sentence)
    for method in ("Chat", "Session"):
        assert await over_grpc(keys.stage, method, bearer(secret)) == said
    call = keys.stage.stub().Chat(chat(keys.stage), metadata=tuple(bearer(secret).items()))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    error = BatonError.from_rpc_error(caught.value)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert error.quota == QuotaViolation("tenant:small", "requests_per_minute", 2)
    assert 0 < (error.retry_after or 0) <= 30
    assert refusals(keys, "requests_per_minute", "tenant") == 5
    # Of one that is answered: grpc.aio may lose a head that comes together with the status.
    call = keys.stage.stub().Chat(
        chat(keys.stage),
        metadata=tuple(bearer(await limited(keys, "other", requests_per_minute=2)).items()),
    )
    assert await call.read()
    metadata = dict(await call.initial_metadata())
    assert metadata["x-ratelimit-remaining-requests"] == "1"
    call.cancel()
    # Not models: only what runs is counted.
    async with httpx.AsyncClient(base_url=keys.stage.http_url) as client:
        listed = await client.get("/v1/models", headers=bearer(secret))
    assert (listed.status_code, listed.headers["x-ratelimit-limit-requests"]) == (200, "2")


async def test_a_key_without_limits_and_a_frontend_without_keys_say_nothing_of_them(
    keys: Keys,
) -> None:
    _, secret = await keys.key()
    answer = await post(keys, secret)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("x-ratelimit")]
    assert len(keys.stage.router.limits) == 0


async def test_a_request_larger_than_the_limit_is_told_to_be_shorter(keys: Keys) -> None:
    secret = await limited(keys, tokens_per_minute=60)
    refused = await post(keys, secret, max_tokens=60)
    assert refused.status_code == 429
    assert "retry-after" not in refused.headers
    assert (
        f"this request needs {PROMPT + 60}: shorten the request"
        in refused.json()["error"]["message"]
    )
    # Without max_tokens it gets what the limit allows.
    whole = await post(keys, secret, max_tokens=None)
    assert whole.json()["usage"]["completion_tokens"] == 60 - PROMPT
    assert whole.headers["x-ratelimit-limit-tokens"] == "60"


@pytest.mark.parametrize("subject", ["key", "project", "tenant"])
async def test_a_context_beyond_what_is_allowed_is_refused_by_whose_it_is(
    keys: Keys, subject: str
) -> None:
    ident, secret = await keys.key()
    project = await keys.admin.find_project("acme", "default")
    names = {"key": repr(ident), "project": f"'default' ({project.id})", "tenant": "'acme'"}
    if subject == "key":
        await keys.admin.update_key(ident, context_tokens=PROMPT + 5)
    elif subject == "project":
        await keys.admin.update_project("acme", "default", context_tokens=PROMPT + 5)
    else:
        await keys.admin.update_tenant("acme", context_tokens=PROMPT + 5)
    async with within(1):
        await eventually(lambda: _said(keys, secret, max_tokens=6))
    whose = f"tokens for {subject} {names[subject]}."
    said = await _said(keys, secret, max_tokens=6)
    assert said is not None
    assert said["code"] == "context_length_exceeded"
    limit = f"This model's maximum context length is {PROMPT + 5} {whose} However, "
    assert said["message"].startswith(f"{limit}you requested {PROMPT + 6} tokens")
    assert "max_tokens can be at most 5" in said["message"]
    assert said["param"] == "max_tokens"
    request = chat(keys.stage)
    request.sampling.max_tokens = 6
    call = keys.stage.stub().Chat(request, metadata=tuple(bearer(secret).items()))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    error = BatonError.from_rpc_error(caught.value)
    assert (error.reason, error.message) == (Reason.CONTEXT_LENGTH_EXCEEDED, said["message"])
    assert await _said(keys, secret, max_tokens=5) is None
    long = [{"role": "user", "content": "x" * 50}]
    said = await _said(keys, secret, messages=long)
    assert said is not None
    assert said["message"].startswith(f"{limit}your messages resulted in")
    assert refusals(keys, "context_tokens", subject) >= 3


async def _said(keys: Keys, secret: str, **body: Any) -> dict[str, Any] | None:
    answer = await post(keys, secret, **body)
    told: dict[str, Any] | None = answer.json().get("error")
    assert (answer.status_code == 200) == (told is None)
    return told


async def test_a_tier_has_a_context_of_its_own(keys: Keys) -> None:
    await keys.tenant("free", Tier.FREE)
    _, secret = await keys.key("free")
    said = await _said(keys, secret, max_tokens=32_768)
    assert said is not None
    assert said["message"].startswith(
        "This model's maximum context length is 32768 tokens for tenant 'free'."
    )
    assert f"at most {32_768 - PROMPT}" in said["message"]


async def test_a_changed_limit_is_in_force_within_a_second(keys: Keys) -> None:
    ident, secret = await keys.key(requests_at_once=1)
    stage = keys.stage
    stage.worker("p0").script.first_token.clear()
    running = asyncio.create_task(post(keys, secret))
    await eventually(lambda: stage.worker("p0").streams)
    assert (await post(keys, secret)).status_code == 429
    await keys.admin.update_key(ident, requests_at_once=2)
    async with within(1):
        second: asyncio.Task[httpx.Response] | None = None

        async def admitted() -> bool:
            nonlocal second
            if second is None or second.done():
                second = asyncio.create_task(post(keys, secret))
            return len(stage.worker("p0").streams) == 2

        await eventually(admitted)
    stage.worker("p0").script.first_token.set()
    assert second is not None
    assert [(await one).status_code for one in (running, second)] == [200, 200]


# Every way in which a request ends.

Way = Callable[[Keys, str], Awaitable[int]]
"""Lets a request of a key end; returns the tokens that it used."""


async def finishes(keys: Keys, secret: str) -> int:
    assert (await post(keys, secret)).status_code == 200
    return PROMPT + OUTPUT


async def streams(keys: Keys, secret: str) -> int:
    assert "[DONE]" in (await post(keys, secret, stream=True)).text
    return PROMPT + OUTPUT


async def stops_early(keys: Keys, secret: str) -> int:
    for name in ("p0", "d0"):
        keys.stage.worker(name).script.eos_after = 2
    assert (await post(keys, secret, max_tokens=20)).status_code == 200
    return PROMPT + 3


async def has_two_choices(keys: Keys, secret: str) -> int:
    assert (await post(keys, secret, n=2)).status_code == 200
    return PROMPT + 2 * OUTPUT


async def resumes(keys: Keys, secret: str) -> int:
    request = chat(keys.stage)
    request.sampling.max_tokens = 5
    request.resume.seed = 1
    request.resume.output_ids.extend(keys.stage.letter_id(one) for one in keys.stage.said(0, 2))
    call = keys.stage.stub().Chat(request, metadata=tuple(bearer(secret).items()))
    async for _ in call:
        pass
    return PROMPT + 3


async def fails_at_the_worker(keys: Keys, secret: str) -> int:
    keys.stage.worker("p0").script.fail = BatonError(Reason.INVALID_FIELD, "no")
    assert (await post(keys, secret)).status_code == 400
    return PROMPT


async def finds_no_place(keys: Keys, secret: str) -> int:
    keys.stage.router.place = lambda _: BatonError(Reason.OVERLOADED, "full")
    assert (await post(keys, secret)).status_code == 503
    return 0


async def is_a_second_one_of_its_id(keys: Keys, secret: str) -> int:
    request = chat(keys.stage, execution_id="mine")
    metadata = tuple(bearer(secret).items())
    async for _ in keys.stage.stub().Chat(request, metadata=metadata):
        pass
    said = await over_grpc(keys.stage, "Chat", bearer(secret), execution_id="mine")
    assert said.reason is Reason.ALREADY_EXISTS
    return PROMPT + OUTPUT


async def is_cancelled_over_grpc(keys: Keys, secret: str) -> int:
    _hold_first_tokens(keys)
    call = keys.stage.stub().Chat(chat(keys.stage), metadata=tuple(bearer(secret).items()))
    await call.read()  # Started
    await _prefills(keys)
    call.cancel()
    return PROMPT


async def is_left_over_http(keys: Keys, secret: str) -> int:
    _hold_first_tokens(keys)
    asking = asyncio.create_task(post(keys, secret))
    await _prefills(keys)
    asking.cancel()
    return PROMPT


async def is_late(keys: Keys, secret: str) -> int:
    _hold_first_tokens(keys)
    metadata = tuple(bearer(secret).items())
    call = keys.stage.stub().Chat(chat(keys.stage), metadata=metadata, timeout=0.3)
    with pytest.raises(grpc.aio.AioRpcError):
        while await call.read() is not grpc.aio.EOF:
            pass
    return PROMPT


async def is_cancelled_in_a_session(keys: Keys, secret: str) -> int:
    _hold_first_tokens(keys)
    call = keys.stage.stub().Session(metadata=tuple(bearer(secret).items()), timeout=30)
    await call.read()
    start = inference_pb2.SessionStart(id=1, chat=chat(keys.stage))
    await call.write(inference_pb2.SessionRequest(starts=[start]))
    await _prefills(keys)
    await call.write(inference_pb2.SessionRequest(cancels=[1]))
    await call.done_writing()
    while await call.read() is not grpc.aio.EOF:
        pass
    return PROMPT


def _hold_first_tokens(keys: Keys) -> None:
    """Let no request that comes from now on end by itself."""
    keys.stage.worker("p0").script.first_token.clear()


async def _prefills(keys: Keys) -> None:
    await eventually(lambda: keys.stage.worker("p0").streams)


@pytest.mark.parametrize(
    "way",
    [
        finishes,
        streams,
        stops_early,
        has_two_choices,
        resumes,
        fails_at_the_worker,
        finds_no_place,
        is_a_second_one_of_its_id,
        is_cancelled_over_grpc,
        is_left_over_http,
        is_late,
        is_cancelled_in_a_session,
    ],
)
async def test_however_a_request_ends_what_it_did_not_use_comes_back(keys: Keys, way: Way) -> None:
    secret = await limited(keys, tokens_per_minute=60, requests_at_once=1)
    watch = Stopwatch()
    used = await way(keys, secret)
    buckets = keys.stage.router.limits._buckets
    tokens = buckets[LimitId(Subject.TENANT, "small", Measure.TOKENS)]
    places = buckets[LimitId(Subject.TENANT, "small", Measure.AT_ONCE)]

    def is_given_back() -> bool:
        left = 60 - used
        came = watch.elapsed + 1  # at one a second, in a request that a busy machine makes long
        return left <= tokens.free + tokens.held <= left + came

    await eventually(is_given_back)
    await eventually(lambda: places.held == 0)


async def test_a_router_that_does_not_answer_delays_a_request_and_fails_it(keys: Keys) -> None:
    secret = await limited(keys, requests_per_minute=60)
    keys.stage.router.answers_limits = False
    async with within(2):
        answer = await post(keys, secret)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "no router is available" in answer.json()["error"]["message"]
    assert refusals(keys, "unanswered", "") == 1
    keys.stage.router.answers_limits = True
    assert (await post(keys, secret)).status_code == 200
