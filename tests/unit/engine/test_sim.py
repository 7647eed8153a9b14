"""The simulator takes the time of its cost model and next to no time of its own."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from baton.engine.base import Engine, SequenceRequest
from baton.engine.checkpoint.model_config import digest_input, read_config
from baton.engine.checkpoint.model_options import ModelOptions
from baton.engine.local import run_local
from baton.engine.paged.rates import EngineRates
from baton.sampling import SamplingParams
from tests.support.clock import Stopwatch, slowness

MakeEngine = Callable[..., Engine]


def requests(count: int, length: int, max_tokens: int) -> list[SequenceRequest]:
    return [
        SequenceRequest(
            id=number,
            root=b"root",
            prompt=[(number * 13 + i) % 500 for i in range(length)],
            sampling=SamplingParams(max_tokens=max_tokens),
        )
        for number in range(count)
    ]


@pytest.mark.serial
def test_steps_take_the_time_of_the_cost_model(make_engine: MakeEngine) -> None:
    engine = make_engine(
        "sim",
        sim_prefill_tokens_per_second=10_000,
        sim_decode_step_seconds=0.004,
        sim_decode_sequence_seconds=0.001,
        sim_time_scale=0.5,
    )
    watch = Stopwatch()
    run_local(engine, requests(4, 500, 11))
    # 2,000 tokens of prompt, and at least ten steps in which all four decode.
    expected = 0.5 * (2000 / 10_000 + 10 * (0.004 + 4 * 0.001))
    assert expected <= watch.elapsed
    assert watch.seconds < expected + 3


@pytest.mark.serial
def test_a_token_costs_few_microseconds(make_engine: MakeEngine) -> None:
    engine = make_engine("sim")
    asked = requests(64, 40, 256)
    began = time.process_time()
    run_local(engine, asked)
    assert (time.process_time() - began) / (64 * 256) < 25e-6 * slowness()


def test_outputs_are_as_long_as_they_are_asked_to_be(make_engine: MakeEngine) -> None:
    engine = make_engine("sim")
    outputs = run_local(engine, requests(20, 5, 300))
    ends = set(engine.info.eos_token_ids)
    assert all(len(output.tokens[0]) == 300 for output in outputs)
    assert not any(ends & set(output.tokens[0]) for output in outputs)


def test_seed_and_choice_count_only_above_temperature_zero(make_engine: MakeEngine) -> None:
    engine = make_engine("sim")
    tokens = {}
    for number, (temperature, seed, choice) in enumerate(
        [(0.0, 1, 0), (0.0, 2, 1), (1.0, 1, 0), (1.0, 2, 0), (1.0, 1, 1)]
    ):
        asked = SequenceRequest(
            id=number,
            root=b"root",
            prompt=[1, 2, 3],
            sampling=SamplingParams(seed=seed, temperature=temperature, max_tokens=8),
            choices=(choice,),
        )
        (output,) = run_local(engine, [asked])
        tokens[number] = tuple(output.tokens[choice])
    assert tokens[0] == tokens[1]
    assert len(set(tokens.values())) == 4


def test_rates_tell_prompts_from_decoding() -> None:
    rates = EngineRates()
    for _ in range(200):
        rates.observe(prompt_tokens=0, decoding=8, seconds=0.01)
        rates.observe(prompt_tokens=100, decoding=8, seconds=0.01 + 0.05)
    assert rates.decode_step_seconds == pytest.approx(0.01)
    assert rates.prefill_tokens_per_second == pytest.approx(2000)
    rates = EngineRates()
    rates.observe(prompt_tokens=100, decoding=0, seconds=0.05)
    assert rates.prefill_tokens_per_second == pytest.approx(2000)
    assert rates.decode_step_seconds == 0


def test_models_without_options_keep_their_digests() -> None:
    config = read_config(Path(__file__).parents[3] / "models" / "baton-tiny")
    assert b"options" not in digest_input(config)
    assert b"options" in digest_input(replace(config, options=ModelOptions(wide_head_norms=True)))
