"""Log probabilities of prompts are those of transformers, as the torch engine's are, in fp32."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from baton.engine.base import Engine, SequenceRequest, UnsupportedFeatureError
from baton.engine.factory import create_engine
from baton.engine.local import LocalOutput, run_local
from baton.engine.testing.random_adapter import write_random_adapter
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.sampling import SamplingParams
from baton.settings import EngineSettings

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-engines")]

TOP = 5
CLOSE = 1e-4
REQUESTS = [
    SequenceRequest(
        seed,
        b"root",
        tuple((7 * i + 3 * seed + i * i) % 500 for i in range(200)),
        SamplingParams(temperature=0, max_tokens=4, ignore_eos=True),
        prompt_logprobs=TOP,
    )
    for seed in range(2)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("scored"), seed=3, head_size=32)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    return write_random_adapter(tmp_path_factory.mktemp("adapter"), model, seed=1, scale=0.3)


def reference(model: Path, asked: SequenceRequest) -> Tensor:
    """Return the log probabilities that transformers computes, [tokens, vocab]."""
    from transformers import AutoModelForCausalLM

    known = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.inference_mode():
        logits: Tensor = known(torch.tensor([asked.prompt])).logits[0]
    return logits.log_softmax(dim=-1)


def make(model: Path, **fields: Any) -> Engine:
    # Each prompt is read in four chunks, the last of which begins within a block.
    shape = {"model": model, "dtype": "float32", "kv_bytes": 2**22, "threads": 1, "max_running": 8}
    return create_engine(EngineSettings.model_validate(shape | {"chunk_tokens": 56} | fields))


def check(output: LocalOutput, asked: SequenceRequest, expected: Tensor) -> None:
    assert len(output.tokens[0]) == 4
    assert len(output.prompt_logprobs) == len(asked.prompt) - 1
    for row, token, entry in zip(expected, asked.prompt[1:], output.prompt_logprobs, strict=False):
        assert entry.logprob == pytest.approx(float(row[token]), abs=CLOSE)
        best = pytest.approx(row.topk(TOP).values.tolist(), abs=CLOSE)
        assert [logprob for _, logprob in entry.top] == best
        assert [float(row[one]) for one, _ in entry.top] == best


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"kind": "torch", "native": "off"}, id="torch"),
        pytest.param({"kind": "vllm", "exact_draws": False}, id="vllm-drawing-itself"),
    ],
)
def test_they_are_those_of_transformers(model: Path, fields: Mapping[str, Any]) -> None:
    engine = make(model, **fields)
    try:
        outputs = run_local(engine, REQUESTS)
    finally:
        engine.close_engine()
    for output, asked in zip(outputs, REQUESTS, strict=True):
        check(output, asked, reference(model, asked))


@pytest.mark.parametrize("reason", ["adapters", "logits"])
def test_where_vllm_cannot_tell_them_they_are_refused(
    model: Path, adapter: Path, reason: str
) -> None:
    fields: dict[str, Any] = {"adapters": {"a": adapter}}
    if reason == "logits":
        fields = {"vllm_args": {"logprobs_mode": "raw_logits"}}
    engine = make(model, kind="vllm", **fields)
    try:
        with pytest.raises(UnsupportedFeatureError, match="prompt_logprobs"):
            engine.add(REQUESTS[0])
        (output,) = run_local(engine, [replace(REQUESTS[0], prompt_logprobs=None)])
        assert len(output.tokens[0]) == 4
    finally:
        engine.close_engine()
