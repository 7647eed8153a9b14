"""Tokens through two processes of vLLM, a store and a router are those of vLLM alone, in fp32."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from baton.telemetry.logs import get_logger
from tests.e2e.vllm.conftest import VLLM, Reference, prompts
from tests.support.engine.model import MODEL
from tests.support.services.cluster import LocalCluster

log = get_logger(__name__)

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-clusters"), pytest.mark.timeout(300)]

OUTPUT_TOKENS = 64
CLOSE = 1e-4
"""Best logits that are nearer to each other than this may change places: sums round."""
PENALTIES = {
    "temperature": 0.9,
    "top_p": 0.95,
    "top_k": 50,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
}


async def ask(cluster: LocalCluster, prompt: list[int], **options: Any) -> tuple[int, ...]:
    stream = cluster.client.generate(
        prompt,
        model=MODEL,
        max_tokens=OUTPUT_TOKENS,
        ignore_eos=True,
        **({"temperature": 0} | options),
    )
    return (await stream.answer()).token_ids


def check_equal(outputs: list[tuple[int, ...]], stock: list[dict[str, Any]]) -> None:
    """Compare outputs with vLLM's; at most one may differ, where two logits were close."""
    excused = 0
    for number, (output, expected) in enumerate(zip(outputs, stock, strict=True)):
        tokens = tuple(expected["tokens"])
        if output == tokens:
            continue
        at = next(i for i, (a, b) in enumerate(zip(output, tokens, strict=True)) if a != b)
        gap = expected["gaps"][at]
        log.warning("vllm.test.differs", prompt=number, token=at, gap=gap)
        assert gap < CLOSE, f"prompt {number} differs at token {at}"
        excused += 1
    smallest = min(min(each["gaps"]) for each in stock)
    log.info("vllm.test.equal", equal=len(stock) - excused, of=len(stock), smallest_gap=smallest)
    assert excused <= 1


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama", 6),
        pytest.param("llama", 30, marks=pytest.mark.soak),
        pytest.param("tiny", 30, marks=pytest.mark.soak),
    ],
)
async def test_greedy_tokens_are_those_of_stock_vllm(
    local_cluster: Any, reference: Reference, model_of: Mapping[str, Path], name: str, count: int
) -> None:
    asked = prompts(count)
    expected = await reference(model_of[name], asked, OUTPUT_TOKENS)
    cluster = await local_cluster(**VLLM, model=model_of[name])
    (decode,) = cluster.decodes
    before = (await cluster.load(decode)).computed_tokens
    outputs = [await ask(cluster, prompt) for prompt in asked]
    computed = (await cluster.load(decode)).computed_tokens - before
    check_equal(outputs, expected)
    # The prefill worker samples each first token, and the last one is computed by nobody.
    assert computed == len(asked) * (OUTPUT_TOKENS - 1), "the decode worker computed prompts"
    # Again, out of whatever is cached, and all at once.
    check_equal([await ask(cluster, prompt) for prompt in asked], expected)
    check_equal(await asyncio.gather(*(ask(cluster, prompt) for prompt in asked)), expected)


@pytest.mark.parametrize("count", [6, pytest.param(30, marks=pytest.mark.soak)])
async def test_seeded_outputs_are_those_of_one_engine(
    local_cluster: Any, reference: Reference, llama: Path, count: int
) -> None:
    asked = prompts(count)
    sampling = [PENALTIES | {"seed": i, "n": 1 + (i % 3 == 0)} for i in range(len(asked))]
    expected = await reference(llama, asked, OUTPUT_TOKENS, sampling=sampling, adapters={})
    cluster = await local_cluster(**VLLM, model=llama)

    async def choices(prompt: list[int], options: dict[str, Any]) -> list[list[int]]:
        stream = cluster.client.generate(
            prompt, model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, **options
        )
        answer = await stream.answer()
        return [list(choice.token_ids) for choice in answer.choices]

    outputs = await asyncio.gather(*map(choices, asked, sampling))
    wrong = [
        i for i, (one, other) in enumerate(zip(outputs, expected, strict=True)) if one != other
    ]
    assert not wrong, f"prompts {wrong} differ"
