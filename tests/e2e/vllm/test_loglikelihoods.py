"""A prompt's log probabilities, over gRPC and HTTP: the torch engine and vLLM tell the same."""

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from baton.request.stream_events import PromptLogprobs
from tests.e2e.vllm.conftest import VLLM
from tests.support.engine.model import MODEL, TRAINED, prompt_of

CONTEXT = prompt_of(600)
"""More than a chunk."""
SAID = 6
TORCH = {"engine": "torch", "settings": {"engine.dtype": "float32"}}
CLOSE = 1e-3


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(TORCH, id="torch"),
        pytest.param(
            VLLM,
            id="vllm",
            marks=[
                pytest.mark.vllm,
                pytest.mark.xdist_group("vllm-clusters"),
                pytest.mark.timeout(300),
            ],
        ),
    ],
)
async def test_they_are_those_of_the_decoded_tokens(
    local_cluster: Any, shape: Mapping[str, Any]
) -> None:
    cluster = await local_cluster(**shape, model=TRAINED)
    options = {"model": MODEL, "max_tokens": SAID, "ignore_eos": True, "temperature": 0}
    said = await cluster.client.generate(CONTEXT, logprobs=1, **options).answer()
    decoded = [entry.logprob for entry in said.choices[0].logprobs]
    assert len(decoded) == SAID
    prompt = [*CONTEXT, *said.token_ids]

    scoring = options | {"max_tokens": 1, "prompt_logprobs": 2}
    events = [event async for event in cluster.client.generate(prompt, **scoring)]
    pieces = [event for event in events if isinstance(event, PromptLogprobs)]
    assert len(pieces) > 1
    entries = [entry for piece in pieces for entry in piece.entries]
    told = [entry.logprob for entry in entries]
    assert len(told) == len(prompt) - 1
    assert told[-SAID:] == pytest.approx(decoded, abs=CLOSE)
    assert tuple(entry.top[0][0] for entry in entries[-SAID:]) == said.token_ids

    # By now all of the prompt is cached.
    async with httpx.AsyncClient(base_url=cluster.http) as http:
        body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 0}
        echoed, plain = [
            (await http.post("/v1/completions", json=body | more)).raise_for_status().json()
            for more in ({"echo": True, "logprobs": 2}, {"prompt_logprobs": 2})
        ]
        messages = [{"role": "user", "content": "There was a young fox"}]
        chat = {"model": MODEL, "messages": messages, "max_tokens": 1, "prompt_logprobs": 0}
        answer = await http.post("/v1/chat/completions", json=chat)
    first, *rest = echoed["choices"][0]["logprobs"]["token_logprobs"]
    assert first is None
    assert rest == pytest.approx(told, abs=CLOSE)
    none, *of_tokens = plain["choices"][0]["prompt_logprobs"]
    assert none is None
    own = [each[str(token)]["logprob"] for each, token in zip(of_tokens, prompt[1:], strict=True)]
    assert own == pytest.approx(told, abs=CLOSE)
    of_chat = answer.raise_for_status().json()
    assert len(of_chat["prompt_logprobs"]) == of_chat["usage"]["prompt_tokens"]
