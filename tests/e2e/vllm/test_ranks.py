"""A worker of two tensor-parallel ranks that speculates: the same greedy tokens, and one life."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.vllm.conftest import VLLM, Reference, prompts
from tests.support.engine.model import MODEL

# Each rank imports vLLM by itself, which takes long; the engine's contract has two ranks, too.
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.xdist_group("vllm-clusters"),
    pytest.mark.soak,
    pytest.mark.timeout(300),
]

OUTPUT_TOKENS = 32
SECONDS = 3.0
"""For a worker to end once a rank has died."""


async def test_two_ranks_that_speculate_answer_like_vllm_and_die_together(
    local_cluster: Any, reference: Reference, llama: Path
) -> None:
    asked = prompts(3, longest=300, seed=17)
    # What repeats itself is proposed from the context.
    asked.append(asked[1][:40] * 4)
    expected = await reference(llama, asked, OUTPUT_TOKENS)
    settings = {
        "role": "combined",
        "placement.disaggregation": "auto",
        "engine.tensor_parallel": 2,
        "engine.speculative_tokens": 3,
    }
    shape = {
        "prefill": 0,
        "processes": ("decode-0",),
        "settings": VLLM["settings"] | settings,
    }
    cluster = await local_cluster(own=True, **VLLM | shape, model=llama)
    (model,) = await cluster.client.models()
    assert not model.exact_continuation
    for prompt, stock in zip(asked, expected, strict=True):
        stream = cluster.client.generate(
            prompt, model=MODEL, max_tokens=OUTPUT_TOKENS, ignore_eos=True, temperature=0
        )
        answer = await stream.answer()
        assert answer.exact_continuation  # greedy is, also here
        assert list(answer.token_ids) == stock["tokens"]
    import psutil  # comes with vLLM

    worker = cluster["decode-0"]
    ranks = [
        child
        for child in psutil.Process(worker.pid).children(recursive=True)
        if "Worker_TP" in child.name()
    ]
    assert len(ranks) == 2
    os.kill(ranks[1].pid, signal.SIGKILL)
    assert await worker.wait(SECONDS) != 0
    assert not any(rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE for rank in ranks)
