"""One family in this process: `family.py FAMILY DIRECTORY`; its last line is a `Result` as JSON."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from baton.engine.base import Engine
from baton.engine.factory import create_engine
from baton.engine.support.preflight import check_engine
from baton.engine.testing.continued import Begun, continue_output
from baton.engine.testing.random_families import VOCAB, write_family
from baton.engine.testing.vllm_alone import stock
from baton.engine.vllm.environment import prepare
from baton.settings import EngineSettings, StartupError
from bench.families.ways import LENGTHS, Prompt, prompts_of, run

FAMILIES = (
    "llama",
    "qwen3",
    "qwen3-moe",
    "mixtral",
    "glm4-moe",
    "mistral",
    "gemma2",
    "gemma3",
    "gpt-oss",
    "llama4",
    "qwen3-next",
)
BEGINNINGS = 9
OUTPUT_TOKENS = 21
MOVED_EVERY = 7
AT_ONCE = 8
CLOSE = 1e-4
"""Best logits that are nearer to each other than this may change places: sums round."""
_KV_BYTES = 2**24
STATES = ("qwen3-next",)
"""Families with states, which vLLM computes on CPUs in bfloat16 only, in blocks of 544 tokens."""
STATE_LENGTHS = (2400, 1200, 2190)
STATES_CLOSE = 0.5
"""As `CLOSE`, in bfloat16: what was decoded token by token is computed again in one chunk."""
WAYS = ("cold", "again", "prefix", "together", "moved", "split")

Outputs = list[Sequence[int]]


@dataclass
class Result:
    """How one family went."""

    refused: str = ""
    """Why it does not start; empty: it does."""
    tokens: int = 0
    """Compared in each way."""
    different: dict[str, int] = field(default_factory=dict)
    """Tokens that differ, by way; after the first different one of an output, all do."""
    excused: dict[str, int] = field(default_factory=dict)
    """Outputs that changed at two logits closer than `CLOSE`, by way; the rest is not compared."""


def measure(family: str, directory: Path) -> Result:
    """Compare one family with stock vLLM.

    Raises:
        ValueError: an output was not computed in the way that its name says.
    """
    model = write_family(directory / family, family)
    states = family in STATES
    settings = EngineSettings(
        kind="vllm",
        model=model,
        dtype="bfloat16" if states else "float32",
        threads=1,
        kv_bytes=_KV_BYTES * 4 if states else _KV_BYTES,
    )
    try:
        check_engine(settings)
    except StartupError as error:
        return Result(refused=str(error).removeprefix(f"{model}/"))
    prepare(settings)
    lengths = STATE_LENGTHS if states else LENGTHS
    prompts = prompts_of(1 if states else BEGINNINGS, VOCAB, lengths)
    asked = {
        "model": str(model),
        "prompts": [list(prompt) for prompt in prompts],
        "output_tokens": OUTPUT_TOKENS,
        "dtype": settings.dtype,
        "prefix_cache": states,
    }
    expected = stock(asked)
    found = compute(settings, prompts)
    result = Result(tokens=len(prompts) * OUTPUT_TOKENS)
    for way in WAYS:
        result.different[way], result.excused[way] = compare(
            found[way], expected, STATES_CLOSE if states else CLOSE
        )
    return result


def compute(settings: EngineSettings, prompts: Sequence[Prompt]) -> dict[str, Outputs]:
    """Return the outputs of Baton's engine, by way.

    Raises:
        ValueError: an output was not computed in the way that its name says.
    """
    found: dict[str, Outputs] = {}
    with open_engine(settings) as engine:
        found["cold"] = _one_by_one(engine, prompts, evict=True)
        found["again"], found["prefix"] = _cached(engine, prompts)
        found["together"] = _together(engine, prompts)
        found["moved"] = [_moved(engine, prompt) for prompt in prompts]
        begun = [continue_output(engine, each, Begun(), 1, OUTPUT_TOKENS) for each in prompts]
    with open_engine(settings) as engine:
        found["split"] = [
            continue_output(engine, prompt, each, OUTPUT_TOKENS, OUTPUT_TOKENS).output
            for prompt, each in zip(prompts, begun, strict=True)
        ]
    return found


def compare(
    outputs: Outputs, expected: list[dict[str, Any]], close: float = CLOSE
) -> tuple[int, int]:
    """Return the number of tokens that differ, and of outputs whose difference is excused."""
    different = excused = 0
    for output, one in zip(outputs, expected, strict=True):
        pairs = enumerate(zip(output, one["tokens"], strict=True))
        first = next((at for at, (ours, stocks) in pairs if ours != stocks), None)
        if first is None:
            continue
        if one["gaps"][first] < close:
            excused += 1
        else:
            different += len(output) - first
    return different, excused


@contextmanager
def open_engine(settings: EngineSettings) -> Iterator[Engine]:
    """Run an engine until the block exits."""
    engine = create_engine(settings)
    try:
        yield engine
    finally:
        engine.close_engine()


def _one_by_one(engine: Engine, prompts: Sequence[Prompt], evict: bool) -> Outputs:
    outputs: Outputs = []
    for prompt in prompts:
        if evict:
            engine.evict_blocks()
        (output,) = run(engine, [prompt], OUTPUT_TOKENS)
        assert output.ended is not None
        if evict == (output.ended.cached_tokens > 0):
            raise ValueError(f"{output.ended.cached_tokens} tokens were cached")
        outputs.append(output.tokens[0])
    return outputs


def _cached(engine: Engine, prompts: Sequence[Prompt]) -> tuple[Outputs, Outputs]:
    """Return outputs of prompts that were there before, and of others with the same beginning."""
    again: Outputs = []
    prefix: Outputs = []
    for at in range(0, len(prompts), len(LENGTHS)):  # as many for each beginning
        beginning = prompts[at : at + len(LENGTHS)]
        for number, prompt in enumerate(beginning):
            engine.evict_blocks()
            run(engine, [beginning[number - 1]], 1)
            prefix += _one_by_one(engine, [prompt], evict=False)
            again += _one_by_one(engine, [prompt], evict=False)
    return again, prefix


def _together(engine: Engine, prompts: Sequence[Prompt]) -> Outputs:
    outputs: Outputs = []
    for at in range(0, len(prompts), AT_ONCE):
        engine.evict_blocks()
        batch = run(engine, prompts[at : at + AT_ONCE], OUTPUT_TOKENS)
        outputs += [each.tokens[0] for each in batch]
    return outputs


def _moved(engine: Engine, prompt: Prompt) -> Sequence[int]:
    begun = Begun()
    for until in range(MOVED_EVERY, OUTPUT_TOKENS + 1, MOVED_EVERY):
        begun = continue_output(engine, prompt, begun, until, OUTPUT_TOKENS)
    return begun.output


if __name__ == "__main__":
    print(json.dumps(asdict(measure(sys.argv[1], Path(sys.argv[2])))))
