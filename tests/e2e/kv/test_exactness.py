"""A request through both pools gives the very tokens of one engine in one process."""

import asyncio

import pytest

from baton.client import Delta
from tests.e2e.conftest import OUTPUT_TOKENS, TORCH
from tests.support.engine.model import MODEL, prompt_of

# What blocks and chunks make of a prompt does not depend on the family: one has all lengths.
LENGTHS = {
    "llama": (1, 15, 16, 17, 33, 500, 3000),
    "qwen2": (1, 17, 500),
    "qwen3": (1, 17, 500),
}
GREEDY = {"temperature": 0.0, "seed": 1}
SEEDED = {
    "temperature": 0.9,
    "top_p": 0.95,
    "top_k": 50,
    "seed": 4711,
    "presence_penalty": 0.3,
    "frequency_penalty": 0.2,
    "repetition_penalty": 1.1,
}


@pytest.mark.parametrize("family", LENGTHS)
async def test_disaggregated_tokens_equal_those_of_one_process(local_cluster, reference, family):
    cluster = await local_cluster(family=family, **TORCH)

    async def ask(prompt, sampling, n=1):
        stream = cluster.client.generate(
            prompt, model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, n=n, **sampling
        )
        answer = await stream.answer()
        where = {step.name: step.instance for step in answer.steps}
        assert where["prefill"] == "prefill-0"
        assert where["decode"] == "decode-0"
        return [choice.token_ids for choice in answer.choices]

    for sampling in (GREEDY, SEEDED):
        # The second pass meets the first one's KV.
        prompts = [prompt_of(length) for length in LENGTHS[family]]
        expected = await reference(family, prompts, sampling)
        for prompt, tokens in zip(prompts, expected, strict=True):
            assert await ask(prompt, sampling) == tokens, f"prompt of {len(prompt)} tokens"

    [two] = await reference(family, [prompt_of(33, seed=2)], SEEDED, n=2)
    assert await ask(prompt_of(33, seed=2), SEEDED, n=2) == two
    assert two[0] != two[1]

    crowd = [prompt_of(20 + 7 * i, seed=3) for i in range(16)]
    expected = await reference(family, crowd, SEEDED)
    assert await asyncio.gather(*(ask(prompt, SEEDED) for prompt in crowd)) == expected


async def test_tokens_arrive_as_they_are_made(local_cluster):
    cluster = await local_cluster(settings={"engine.sim_decode_step_seconds": 0.05})
    seen = 0
    async with cluster.client.generate(
        prompt_of(100), model=MODEL, max_tokens=400, ignore_eos=True
    ) as stream:
        async for event in stream:
            seen += isinstance(event, Delta)
            if seen == 4:
                break
        assert (await cluster.load(cluster.decodes[0])).streams == 1, "held back to the end"
