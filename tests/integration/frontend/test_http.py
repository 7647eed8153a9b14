"""The OpenAI API over real sockets: shapes, events and headers."""

import json
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

import httpx
import pytest

from baton import __version__
from baton.errors import BatonError, Reason
from tests.support.clock import DEADLINE_SECONDS, within


@pytest.fixture
async def client(stage: Any) -> Any:
    async with httpx.AsyncClient(base_url=stage.http_url, timeout=DEADLINE_SECONDS) as client:
        yield client


def chat(stage: Any, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "hi"}]
    return {"model": stage.model, "messages": messages, "max_tokens": 6, **fields}


def events_of(text: str) -> list[Any]:
    """The events of a stream; fails unless it is made of `data:` events only."""
    assert text.endswith("\n\n")
    found = []
    for event in text.removesuffix("\n\n").split("\n\n"):
        assert event.startswith("data: ")
        data = event.removeprefix("data: ")
        found.append(data if data == "[DONE]" else json.loads(data))
    return found


def joined(lists: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(lists))


async def test_a_whole_chat_completion(stage: Any, client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/chat/completions", json=chat(stage))
    assert answer.status_code == 200
    body = answer.json()
    assert body.pop("created") > 1_700_000_000
    assert re.fullmatch("fp_[0-9a-f]{12}", body.pop("system_fingerprint"))
    assert body == {
        "id": f"chatcmpl-{answer.headers['x-request-id']}",
        "object": "chat.completion",
        "model": stage.model,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": stage.said(0, 6), "refusal": None},
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
            }
        ],
        "usage": {
            "prompt_tokens": 18,
            "completion_tokens": 6,
            "total_tokens": 24,
            "prompt_tokens_details": {"cached_tokens": 32},
        },
    }
    await stage.quiet()


async def test_a_chat_completion_as_a_stream(stage: Any, client: httpx.AsyncClient) -> None:
    asked = chat(stage, stream=True, n=2, stream_options={"include_usage": True})
    answer = await client.post("/v1/chat/completions", json=asked)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-accel-buffering"] == "no"
    *chunks, usage, done = events_of(answer.text)
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 12
    assert all(chunk["usage"] is None for chunk in chunks)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    for index in (0, 1):
        mine = [c["choices"][0] for c in chunks if c["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert mine[-1]["delta"] == {}
        assert [c["finish_reason"] for c in mine] == [None] * (len(mine) - 1) + ["length"]
        text = "".join(c["delta"].get("content", "") for c in mine)
        assert text == stage.said(index, 6)
    await stage.quiet()


async def test_a_stream_has_no_usage_unless_asked(stage: Any, client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/chat/completions", json=chat(stage, stream=True))
    *chunks, done = events_of(answer.text)
    assert done == "[DONE]"
    assert not any("usage" in chunk for chunk in chunks)
    assert all(chunk["choices"] for chunk in chunks)


async def test_events_leave_as_tokens_come(stage: Any, client: httpx.AsyncClient) -> None:
    stage.worker("d0").script.step_seconds = 3600.0
    async with client.stream(
        "POST", "/v1/chat/completions", json=chat(stage, stream=True)
    ) as answer:
        received = ""
        async with within(2.0):
            async for text in answer.aiter_text():
                received += text
                if f'"content":"{stage.said(0, 1)}"' in received:
                    break
    await stage.quiet()


async def test_chat_log_probabilities(stage: Any, client: httpx.AsyncClient) -> None:
    entry = {"token": "a", "logprob": -0.5, "bytes": [97]}
    wanted = {"content": [{**entry, "top_logprobs": [entry]}]}
    asked = chat(stage, logprobs=True, top_logprobs=1, max_tokens=1)
    body = (await client.post("/v1/chat/completions", json=asked)).json()
    assert body["choices"][0]["logprobs"] == wanted
    answer = await client.post("/v1/chat/completions", json={**asked, "stream": True})
    chunks = [chunk["choices"][0] for chunk in events_of(answer.text)[:-1]]
    assert [chunk["logprobs"] for chunk in chunks] == [None, wanted, None]


async def test_completion_log_probabilities(stage: Any, client: httpx.AsyncClient) -> None:
    asked = {"model": stage.model, "prompt": "x", "max_tokens": 3, "logprobs": 1}
    body = (await client.post("/v1/completions", json=asked)).json()
    assert body["choices"][0]["logprobs"] == {
        "tokens": ["a", "b", "c"],
        "token_logprobs": [-0.5] * 3,
        "top_logprobs": [{"a": -0.5}, {"b": -0.5}, {"c": -0.5}],
        "text_offset": [0, 1, 2],
    }
    answer = await client.post("/v1/completions", json={**asked, "stream": True})
    entries = [chunk["choices"][0]["logprobs"] for chunk in events_of(answer.text)[:-1]]
    assert [e["text_offset"][0] for e in entries if e] == [0, 1, 2]


@pytest.mark.parametrize("stream", [False, True])
async def test_token_ids_as_vllm_gives_them(
    stage: Any, client: httpx.AsyncClient, stream: bool
) -> None:
    ids = [stage.letter_id(letter) for letter in stage.said(0, 3)]
    asked = chat(stage, return_token_ids=True, max_tokens=3, stream=stream)
    answer = await client.post("/v1/chat/completions", json=asked)
    bodies = events_of(answer.text)[:-1] if stream else [answer.json()]
    assert len(bodies[0]["prompt_token_ids"]) == 18
    assert sum("prompt_token_ids" in body for body in bodies) == 1
    assert joined(body["choices"][0].get("token_ids", []) for body in bodies) == ids

    asked = {"model": stage.model, "prompt": [5, 6], "max_tokens": 3, "stream": stream}
    asked["return_token_ids"] = True
    answer = await client.post("/v1/completions", json=asked)
    bodies = events_of(answer.text)[:-1] if stream else [answer.json()]
    choices = [body["choices"][0] for body in bodies]
    assert [c["prompt_token_ids"] for c in choices if "prompt_token_ids" in c] == [[5, 6]]
    assert joined(choice.get("token_ids", []) for choice in choices) == ids


async def test_prompts_of_every_kind(stage: Any, client: httpx.AsyncClient) -> None:
    for prompt, count in (
        ("abc", 1),
        (["abc", "d"], 2),
        ([1, 2, 3], 1),
        ([[1, 2, 3], [4]], 2),
        (["one"], 1),
    ):
        asked = {"model": stage.model, "prompt": prompt, "n": 2, "max_tokens": 16}
        whole = (await client.post("/v1/completions", json=asked)).json()
        # The choices of a prompt stand together.
        wanted = {at: stage.said(at % 2, 16) for at in range(2 * count)}
        assert {choice["index"]: choice["text"] for choice in whole["choices"]} == wanted
        assert whole["usage"]["completion_tokens"] == 32 * count

        asked |= {"stream": True, "stream_options": {"include_usage": True}}
        answer = await client.post("/v1/completions", json=asked)
        *chunks, last, done = events_of(answer.text)
        texts: dict[int, str] = {}
        for choice in (chunk["choices"][0] for chunk in chunks):
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
        assert (texts, done) == (wanted, "[DONE]")
        assert last["usage"] == whole["usage"]
    await stage.quiet()


async def test_stop_and_ignore_eos(stage: Any, client: httpx.AsyncClient) -> None:
    body = (await client.post("/v1/chat/completions", json=chat(stage, stop="cd"))).json()
    assert body["choices"][0]["message"]["content"] == "ab"
    assert body["choices"][0]["finish_reason"] == "stop"
    stage.worker("d0").script.eos_after = 3
    body = (await client.post("/v1/chat/completions", json=chat(stage))).json()
    assert body["choices"][0]["message"]["content"] == "abc"
    body = (await client.post("/v1/chat/completions", json=chat(stage, ignore_eos=True))).json()
    assert body["choices"][0]["message"]["content"] == stage.said(0, 6)


async def test_parameters_reach_the_worker(stage: Any, client: httpx.AsyncClient) -> None:
    asked = chat(
        stage,
        max_tokens=9,
        max_completion_tokens=4,
        temperature=0.5,
        top_p=0.25,
        top_k=7,
        min_p=0.125,
        seed=42,
        presence_penalty=1,
        frequency_penalty=-1,
        repetition_penalty=1.5,
        logit_bias={"3": 2.5},
        min_tokens=2,
        stop_token_ids=[9],
        allowed_token_ids=[9, 7],
        ignore_eos=True,
        user="someone",
        metadata={"a": "b"},
        store=False,
        service_tier="auto",
        prompt_cache_key="k",
        safety_identifier="s",
    )
    assert (await client.post("/v1/chat/completions", json=asked)).status_code == 200
    start = stage.worker("d0").starts()[0]
    sampling = start.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.25, 7)
    assert (sampling.min_p, sampling.seed, dict(sampling.logit_bias)) == (0.125, 42, {3: 2.5})
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1, -1)
    assert sampling.repetition_penalty == 1.5
    assert (sampling.max_tokens, sampling.min_tokens, sampling.ignore_eos) == (4, 2, True)
    assert (list(sampling.stop_token_ids), list(sampling.allowed_token_ids)) == ([9], [9, 7])
    assert start.context.tenant == "default"


async def test_content_in_parts_is_one_text(stage: Any, client: httpx.AsyncClient) -> None:
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    asked = chat(stage, messages=[{"role": "user", "content": parts}])
    assert (await client.post("/v1/chat/completions", json=asked)).status_code == 200
    asked = chat(stage)
    assert (await client.post("/v1/chat/completions", json=asked)).status_code == 200
    first, second = stage.worker("p0").starts()
    assert first.prompt_token_ids == second.prompt_token_ids


async def test_models_and_tokenize(stage: Any, client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/models")).json()
    assert [model["id"] for model in listed["data"]] == [stage.model]
    one = (await client.get(f"/v1/models/{stage.model}")).json()
    assert one == listed["data"][0]
    assert one["max_model_len"] == stage.context
    missing = await client.get("/v1/models/no/such")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
    for path in ("/v1/tokenize", "/tokenize"):
        answer = (await client.post(path, json={"model": stage.model, "prompt": "ab"})).json()
        ids = [stage.letter_id("a"), stage.letter_id("b")]
        assert answer == {"count": 2, "max_model_len": stage.context, "tokens": ids}
    asked: dict[str, Any] = {"model": stage.model, "prompt": "ab", "return_token_strs": True}
    answer = (await client.post("/tokenize", json=asked)).json()
    assert answer["token_strs"] == ["a", "b"]
    asked = {"model": stage.model, "tokens": answer["tokens"]}
    assert (await client.post("/detokenize", json=asked)).json() == {"prompt": "ab"}
    wrong = await client.post("/detokenize", json={**asked, "tokens": [1, 257]})
    assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "tokens")
    assert (await client.get("/version")).json() == {"version": __version__}
    messages = [{"role": "user", "content": "hi"}]
    asked = {"model": stage.model, "messages": messages}
    assert (await client.post("/v1/tokenize", json=asked)).json()["count"] == 18


async def test_health_and_metrics(stage: Any, client: httpx.AsyncClient) -> None:
    for path in ("/health", "/health/live", "/health/ready"):
        assert (await client.get(path)).status_code == 200
    assert (await client.post("/v1/chat/completions", json=chat(stage))).status_code == 200
    assert (await client.get("/metrics")).status_code == 404
    await stage.frontend.process.drain(1.0)
    assert (await client.get("/health/ready")).status_code == 503
    assert (await client.get("/health/live")).status_code == 200
    refused = await client.post("/v1/chat/completions", json=chat(stage))
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "draining"
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["retry-after-ms"] == "1000"


async def test_every_answer_names_the_request(stage: Any, client: httpx.AsyncClient) -> None:
    named = {"x-request-id": "mine-1"}
    answer = await client.post("/v1/chat/completions", json=chat(stage), headers=named)
    assert answer.headers["x-request-id"] == "mine-1"
    assert stage.worker("p0").starts()[0].context.request_id == "mine-1"
    for path in ("/v1/models", "/nowhere"):
        assert (await client.get(path, headers=named)).headers["x-request-id"] == "mine-1"
    strange = {"x-request-id": "no spaces, please"}
    answer = await client.get("/v1/models", headers=strange)
    assert answer.headers["x-request-id"].startswith("req-")


async def test_an_error_after_the_first_event_is_the_last_event(
    stage: Any, client: httpx.AsyncClient
) -> None:
    for name in ("d0", "d1"):
        stage.worker(name).script.step_seconds = 0.02
    asked = chat(stage, stream=True, max_tokens=500)
    async with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
        assert answer.status_code == 200
        lines = answer.aiter_lines()
        while '"content":"c"' not in await anext(lines):
            pass
        stage.worker("d1").script.fail = BatonError(Reason.WORKER_LOST, "gone")
        await stage.members["d0"].crash()
        rest = [line async for line in lines if line]
    error = json.loads(rest[-1].removeprefix("data: "))["error"]
    assert error["type"] == "server_error"
    assert error["code"] == "worker_lost"
    await stage.quiet()


async def test_a_trace_goes_on_to_the_workers(stage: Any, client: httpx.AsyncClient) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    assert (await client.post("/v1/chat/completions", json=chat(stage), headers=headers)).is_success
    for name in ("p0", "d0"):
        assert trace in stage.worker(name).starts()[0].traceparent
    assert trace in stage.router.queries[0].traceparent
