"""Pictures through the whole cluster: tokens are those of vLLM alone, and no picture's KV is taken
for another's."""

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
import tokenizers

from baton.client.errors import InvalidRequestError
from baton.engine.testing.random_vision import random_png, write_vision_checkpoint
from tests.e2e.vllm.conftest import VLLM, Reference
from tests.support.clock import DEADLINE_SECONDS
from tests.support.engine.model import MODEL

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-clusters"), pytest.mark.timeout(300)]

OUTPUT_TOKENS = 24
BLOCK_TOKENS = 32
WORDS = "Sona tero mulin dabe fokir santo belu " * 3
ALONE: dict[str, Any] = VLLM | {"processes": ("decode-0",), "prefill": 0}
"""One worker, which reads prompts and writes answers."""


@pytest.fixture(scope="module")
def vision(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_vision_checkpoint(tmp_path_factory.mktemp("vision") / "tiny")


def url_of(picture: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(picture).decode()


def parts(*content: str | bytes) -> list[dict[str, Any]]:
    """Return the content of a message of texts and pictures."""
    return [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {
            "type": "image_url",
            "image_url": {"url": url_of(part)},
        }
        for part in content
    ]


CONVERSATIONS: Sequence[tuple[str | bytes, ...]] = (
    (WORDS, random_png(0), "dabe"),
    (WORDS, random_png(1), "dabe"),
    (WORDS, random_png(0), "dabe"),
    (WORDS, random_png(0), random_png(1), "dabe"),
    (WORDS, random_png(1), "tero", random_png(0, 300, 20), "dabe"),
    (random_png(2, 5, 700),),
    (WORDS, "dabe"),
)


async def expected_tokens(reference: Reference, model: Path) -> list[tuple[int, ...]]:
    """Return what vLLM alone answers to the conversations."""
    tokenizer = tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))
    prompts = []
    for content in CONVERSATIONS:
        said = "".join(part if isinstance(part, str) else "<image>" for part in content)
        text = f"<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"
        prompts.append(tokenizer.encode(text).ids)
    pictures = [
        [base64.b64encode(part).decode() for part in content if isinstance(part, bytes)]
        for content in CONVERSATIONS
    ]
    answers = await reference(model, prompts, OUTPUT_TOKENS, pictures=pictures)
    return [tuple(answer["tokens"]) for answer in answers]


async def over_http(client: httpx.AsyncClient, content: Sequence[str | bytes]) -> Any:
    answer = await client.post(
        "/v1/chat/completions",
        json={
            "model": MODEL,
            "messages": [{"role": "user", "content": parts(*content)}],
            "max_tokens": OUTPUT_TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "return_token_ids": True,
        },
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("shape", [ALONE, VLLM], ids=["alone", "split"])
async def test_tokens_are_those_of_stock_vllm(
    local_cluster: Any, reference: Reference, vision: Path, shape: dict[str, Any]
) -> None:
    expected = await expected_tokens(reference, vision)
    assert len(set(expected)) == len(expected) - 1, "outputs do not tell the pictures apart"
    cluster = await local_cluster(**shape, model=vision)
    async with httpx.AsyncClient(base_url=cluster.http, timeout=DEADLINE_SECONDS) as client:
        answers = [await over_http(client, content) for content in CONVERSATIONS]
    assert [tuple(one["choices"][0]["token_ids"]) for one in answers] == expected

    cached = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in answers]
    before = cached[1]
    assert before > 0, "the text before another picture was not found"
    assert before < cached[2], "the same picture was not found"

    streams = [
        cluster.client.chat(
            [{"role": "user", "content": parts(*content)}],
            model=MODEL,
            max_tokens=OUTPUT_TOKENS,
            temperature=0,
            ignore_eos=True,
        )
        for content in CONVERSATIONS
    ]
    assert [(await stream.answer()).token_ids for stream in streams] == expected


async def test_a_decode_worker_without_kv_computes_the_picture_itself(
    local_cluster: Any, reference: Reference, vision: Path
) -> None:
    expected = await expected_tokens(reference, vision)
    cluster = await local_cluster(**VLLM, model=vision)
    await cluster.services["kvstore-0"].stop(drain=False)
    async with httpx.AsyncClient(base_url=cluster.http, timeout=DEADLINE_SECONDS) as client:
        answers = [await over_http(client, content) for content in CONVERSATIONS]
    assert [tuple(one["choices"][0]["token_ids"]) for one in answers] == expected


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (url_of(b"no picture"), "the data is not a picture"),
        (url_of(random_png(0)[:-60]), "picture 1 cannot be read: it is broken"),
        (url_of(random_png(0, 5000, 4000)[:99]), "5000 × 4000 pixels exceed the limit of 16777216"),
        (url_of(random_png(0)) + "=", "the data URL is not valid base64"),
    ],
)
async def test_what_cannot_be_read_is_refused_alike(
    local_cluster: Any, vision: Path, url: str, said: str
) -> None:
    cluster = await local_cluster(**VLLM, model=vision)
    content = [{"type": "image_url", "image_url": {"url": url}}]
    messages = [{"role": "user", "content": content}]
    async with httpx.AsyncClient(base_url=cluster.http, timeout=DEADLINE_SECONDS) as client:
        answer = await client.post(
            "/v1/chat/completions", json={"model": MODEL, "messages": messages, "max_tokens": 4}
        )
    told = answer.json()["error"]
    assert answer.status_code == 400
    assert said in told["message"]
    with pytest.raises(InvalidRequestError) as caught:
        await cluster.client.chat(messages, model=MODEL, max_tokens=4).answer()
    assert str(caught.value).replace(".parts[", ".content[").endswith(told["message"])
