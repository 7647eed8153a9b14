"""One family with one engine in this process; the last line of output is a `Result` as JSON.

python -m bench.gpu.family FAMILY ENGINE DEVICE BEGINNINGS REFERENCE DIRECTORY
"""

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from baton.engine.base import Engine, SequenceRequest
from baton.engine.local import run_local
from baton.engine.support.preflight import check_engine
from baton.engine.testing.random_families import VOCAB, write_family
from baton.engine.vllm.environment import prepare
from baton.sampling import SamplingParams
from baton.settings import EngineSettings, StartupError
from bench.families.family import OUTPUT_TOKENS, WAYS, Outputs, compute, open_engine
from bench.families.ways import Prompt, prompts_of
from bench.gpu.references import MEMORY_SHARE, has_vllm, transformers_outputs, vllm_outputs

DTYPE = "bfloat16"
KV_BYTES = 2**26
Kind = Literal["torch", "vllm"]


@dataclass
class Result:
    """How one family went with one engine."""

    refused: str = ""
    """Why it does not start; empty: it does."""
    reference: str = ""
    """Which outputs its own are compared with: of vllm or of transformers."""
    tokens: int = 0
    """Compared with the reference, and in each way with the outputs of `cold`."""
    different: int = 0
    """Tokens of `cold` that are not the reference's, from an output's first different one on."""
    gap: float = 0.0
    """Largest lead of the reference's token over its next best where an output first differs."""
    mean_off: float = 0.0
    """Mean difference of logprobs, of the tokens of the reference's outputs, from its own."""
    most_off: float = 0.0
    """The largest such difference."""
    ways: dict[str, int] = field(default_factory=dict)
    """Tokens that are not those of `cold`, by the other ways."""
    deterministic: bool = False
    """Whether the engine promises that there are none."""
    start_seconds: float = 0.0


def measure(
    family: str, kind: Kind, device: str, beginnings: int, reference: str, directory: Path
) -> Result:
    """Compare one family with a reference, and ways to compute its outputs with each other.

    Raises:
        ValueError: an output was not computed in the way that its name says.
    """
    model = write_family(directory / family, family)
    settings = _settings(kind, device, model)
    try:
        check_engine(settings)
    except StartupError as error:
        return Result(refused=str(error).removeprefix(f"{model}/"))
    prepare(settings)
    prompts = prompts_of(beginnings, VOCAB)
    asked = {
        "model": str(model),
        "prompts": [list(prompt) for prompt in prompts],
        "output_tokens": OUTPUT_TOKENS,
        "dtype": DTYPE,
    }
    with_vllm = reference == "vllm" and has_vllm(device)
    compared = vllm_outputs if with_vllm else transformers_outputs
    expected = compared(asked, device)
    found = compute(settings, prompts)
    result = Result(reference=compared.__name__.removesuffix("_outputs"))
    began = time.monotonic()
    with open_engine(settings) as engine:
        result.start_seconds = time.monotonic() - began
        result.deterministic = "deterministic" in engine.info.features
        scored = [_score(engine, *each) for each in zip(prompts, expected, strict=True)]
    judge(result, found["cold"], scored, expected)
    for way in WAYS[1:]:
        result.ways[way] = differing(found[way], found["cold"])
    return result


def _score(engine: Engine, prompt: Prompt, one: dict[str, Any]) -> list[float]:
    """Return the logprobs that an engine gives the tokens of the reference's output."""
    engine.evict_blocks()
    params = SamplingParams(temperature=0, max_tokens=1)
    asked = SequenceRequest(0, b"root", (*prompt, *one["tokens"]), params, prompt_logprobs=0)
    (output,) = run_local(engine, [asked])
    return [each.logprob for each in output.prompt_logprobs[-len(one["tokens"]) :]]


def judge(
    result: Result,
    outputs: Outputs,
    scored: Sequence[Sequence[float]],
    expected: Sequence[dict[str, Any]],
) -> None:
    """Fill in what the comparison with the reference says.

    Args:
        result: changed.
        outputs: of the engine.
        scored: logprobs that it gives the tokens of the reference's outputs.
        expected: the reference's outputs, as of `stock`.
    """
    off: list[float] = []
    for output, logprobs, one in zip(outputs, scored, expected, strict=True):
        same = equal_tokens(output, one["tokens"])
        result.tokens += len(output)
        result.different += len(output) - same
        if same < len(output):
            result.gap = max(result.gap, one["gaps"][same])
        pairs = zip(logprobs, one["logprobs"], strict=True)
        off += [abs(ours - theirs) for ours, theirs in pairs]
    result.mean_off, result.most_off = sum(off) / len(off), max(off)


def differing(outputs: Outputs, others: Outputs) -> int:
    """Return the number of tokens from the first different one of each output on."""
    pairs = zip(outputs, others, strict=True)
    return sum(len(output) - equal_tokens(output, other) for output, other in pairs)


def equal_tokens(output: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of tokens before the first different one."""
    pairs = enumerate(zip(output, other, strict=True))
    return next((at for at, (one, another) in pairs if one != another), len(output))


def _settings(kind: Kind, device: str, model: Path) -> EngineSettings:
    on_gpu = device != "cpu"
    return EngineSettings(
        kind=kind,
        model=model,
        device=device,
        dtype=DTYPE,
        threads=1,
        kv_bytes=KV_BYTES,
        deterministic="required" if on_gpu and kind == "torch" else "auto",
        vllm_args={"gpu_memory_utilization": MEMORY_SHARE} if on_gpu and kind == "vllm" else {},
    )


if __name__ == "__main__":
    family, kind, device, beginnings, reference, directory = sys.argv[1:]
    found = measure(family, kind, device, int(beginnings), reference, Path(directory))  # type: ignore[arg-type]
    print(json.dumps(asdict(found)))
