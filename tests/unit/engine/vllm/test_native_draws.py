"""With exact_draws off vLLM samples by itself, and says so."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from baton.engine.base import SequenceRequest
from baton.engine.factory import create_engine
from baton.engine.local import run_local
from baton.engine.testing.random_checkpoint import write_random_checkpoint
from baton.sampling import PARAMETERS, SamplingParams
from baton.settings import EngineSettings

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm-engines")]


def test_vllm_draws_in_its_own_way_and_greedy_stays_what_it_is(tmp_path: Path) -> None:
    model = write_random_checkpoint(tmp_path, head_size=32)
    fields = {"kind": "vllm", "model": model, "dtype": "float32", "kv_bytes": 2**22, "threads": 1}
    # Prompts are read in several chunks: of a seeded one vLLM's engine died on a CPU.
    fields |= {"chunk_tokens": 64, "max_running": 8}
    prompts = [tuple((7 * i + 3 * seed) % 500 for i in range(200)) for seed in range(3)]
    greedy = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
    drawn = SamplingParams(
        temperature=1.0,
        top_p=0.9,
        top_k=20,
        seed=5,
        min_tokens=4,
        repetition_penalty=1.1,
        logit_bias={5: 2.0},
        logprobs=2,
        max_tokens=8,
        ignore_eos=True,
    )
    answers = []
    for exact in (True, False):
        engine = create_engine(EngineSettings.model_validate(fields | {"exact_draws": exact}))
        try:
            assert engine.info.exact_continuation is exact
            requests = [
                SequenceRequest(number, b"root", prompt, sampling)
                for number, (prompt, sampling) in enumerate(
                    (prompt, sampling) for prompt in prompts for sampling in (greedy, drawn)
                )
            ]
            outputs = run_local(engine, requests)
            answers.append([output.tokens[0] for output in outputs[::2]])
            for output in outputs[1::2]:
                assert len(output.tokens[0]) == len(output.logprobs[0]) == 8
                assert all(len(entry.top) == 2 for entry in output.logprobs[0])
            if not exact:
                with pytest.raises(ValueError, match="several choices require exact draws"):
                    choices = {"choices": (0, 1), "prefill_only": True}
                    engine.add(SequenceRequest(9, b"root", prompts[0], drawn, **choices))
        finally:
            engine.close_engine()
    assert answers[0] == answers[1]


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_values_that_vllm_takes_unchanged_reach_it(temperature: float) -> None:
    from baton.engine.vllm.sequences.requests import native_params

    given = {
        "top_k": 7,
        "min_p": 0.5,
        "presence_penalty": 0.25,
        "frequency_penalty": -0.5,
        "repetition_penalty": 1.5,
        "logprobs": 3,
    }
    draws = {"top_k", "min_p"}
    assert set(given) == {each.name for each in PARAMETERS if each.traits.vllm}
    request = SequenceRequest(1, b"root", (1,), SamplingParams(temperature=temperature, **given))
    sequence: Any = SimpleNamespace(request=request, tokens=[1], length_limit=9, stops=frozenset())
    params = native_params(sequence, 100, on_cpu=True)
    for each in PARAMETERS:
        if each.traits.vllm:
            has_effect = temperature > 0 or each.name not in draws
            value = given[each.name] if has_effect else each.default
            assert getattr(params, each.traits.vllm) == value
