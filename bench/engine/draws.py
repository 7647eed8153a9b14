"""Sampling cost of a decode step, compared with vLLM's sampler: `python -m bench.engine.draws`.

Milliseconds per step to sample one token for each row of logits, and their share of a decode step
of the 292M model (512-token prompts, as in bench.engine.throughput). The decode step is timed in
the same run unless --step-ms is set. Logits are "peaked", as those of trained models (a wide bulk
and 64 tokens 8 to 14 above it), or "flat" (a standard normal distribution), where top-p keeps half
of the vocabulary. Every request has a seed, 512 tokens of prompt and 512 of output.

    python -m bench.engine.draws [--rounds 3] [--threads 2] [--clock cpu] [--step-ms 40,50,80]

If vLLM is installed in this environment, its sampler runs too: it samples from the same logits, in
turns with Baton's, with its own generators. The shortest time counts. `ratio` is Baton's time
divided by vLLM's.
"""

import argparse
import os
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from baton.engine.sampling.counts import TokenCounts
from baton.engine.sampling.draw import Draw
from baton.engine.sampling.sample import sample
from baton.sampling import SamplingParams
from bench.engine.case import CHUNK_TOKENS, CLOCKS, Case
from bench.engine.engines import Ours, torch_settings
from bench.engine.peer_sampler import installed, vllm_step
from bench.harness import cli
from bench.harness.checkpoints import random_llama
from bench.harness.table import Table

KINDS = {
    "greedy": SamplingParams(temperature=0),
    "temperature": SamplingParams(temperature=0.8),
    "top-p": SamplingParams(temperature=0.8, top_p=0.9),
    "top-k": SamplingParams(temperature=0.8, top_k=50),
    "penalties + top-p": SamplingParams(
        temperature=0.8,
        top_p=0.9,
        repetition_penalty=1.1,
        frequency_penalty=0.2,
        presence_penalty=0.1,
    ),
}
BATCHES = (1, 8, 32)
_TOKENS = 512
_VARIANTS = 3
"""Number of different logits, used in turns, so that no branch is predicted from the step
before."""


@dataclass(frozen=True)
class Setup:
    """One batch of rows."""

    vocab: int
    batch: int
    shape: str

    def logits(self) -> list[Tensor]:
        generator = torch.Generator().manual_seed(self.vocab + self.batch)
        found = []
        for _ in range(_VARIANTS):
            rows = torch.randn(self.batch, self.vocab, generator=generator)
            if self.shape == "peaked":
                likely = torch.randint(0, self.vocab, (self.batch, 64), generator=generator)
                raised = 8 + 6 * torch.rand(self.batch, 64, generator=generator)
                rows.mul_(2.5).scatter_add_(1, likely, raised)
            found.append(rows)
        return found

    def tokens(self) -> list[list[int]]:
        """Prompt and output tokens of every row."""
        draw = random.Random(self.vocab)
        return [[draw.randrange(self.vocab) for _ in range(2 * _TOKENS)] for _ in range(self.batch)]


def baton_step(sampling: SamplingParams, tokens: list[list[int]]) -> Callable[[Tensor], object]:
    """Return a function that samples a token per row of logits, as the torch engine does."""
    draws = []
    for row, each in enumerate(tokens):
        counts = TokenCounts(_TOKENS)
        counts.catch_up(each)
        seeded = msgspec.structs.replace(sampling, seed=row)
        draws.append(Draw(seeded, 0, each, _TOKENS, counts=counts))
    return lambda logits: sample(logits, draws)


def take_turns(
    steps: dict[str, Callable[[Tensor], object]], logits: list[Tensor], options: argparse.Namespace
) -> dict[str, float]:
    """Return the shortest seconds per step of each function."""
    now = CLOCKS[options.clock]
    work = torch.empty_like(logits[0])
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(options.rounds + 1):
        for name, step in steps.items():
            spent = 0.0
            turn = 0
            while spent < options.least_seconds or turn <= _VARIANTS:
                # A new copy, as a model would have just written it: vLLM works in place.
                work.copy_(logits[turn % _VARIANTS])
                began = now()
                step(work)
                seconds = now() - began
                spent += seconds
                turn += 1
                if turn > 1:
                    best[name] = min(best[name], seconds)
    return best


async def step_seconds(options: argparse.Namespace) -> dict[int, float]:
    """Return the seconds of a decode step of the 292M model, by batch size."""
    if options.step_ms:
        given = [float(each) / 1e3 for each in options.step_ms.split(",")]
        return dict(zip(BATCHES, given, strict=True))
    ours = Ours(torch_settings(options, random_llama("292M")), options.clock)
    found = {}
    for batch in BATCHES:
        case = Case(batch, 512, 16)
        seconds = [await ours.run(case, turn) for turn in range(options.rounds + 1)]
        found[batch] = min(seconds[1:]) / case.steps
    return found


async def measure(options: argparse.Namespace) -> list[dict[str, Any]]:
    torch.set_num_threads(options.threads)
    steps = await step_seconds(options)
    print(f"{options.threads} threads, {options.clock} time, torch {torch.__version__}")
    for batch, seconds in steps.items():
        print(f"decode step of the 292M model, batch {batch}: {seconds * 1e3:.1f} ms")
    peer = not options.alone and installed()
    columns = [("vocabulary", "<10"), ("rows", "4d"), ("logits", "<6"), ("draw", "<17")]
    columns += [("ms", "8.2f"), ("of step", "7.1%")]
    columns += [("vLLM ms", "8.2f"), ("ratio", "6.2f")] if peer else []
    table = Table(*columns)
    results = []
    for vocab in options.vocabularies:
        for batch in BATCHES:
            for shape in ("peaked", "flat"):
                setup = Setup(vocab, batch, shape)
                logits, tokens = setup.logits(), setup.tokens()
                for kind, sampling in KINDS.items():
                    if options.kind not in kind:
                        continue
                    of_kind = {"baton": baton_step(sampling, tokens)}
                    if peer:
                        prompts = [each[:_TOKENS] for each in tokens]
                        outputs = [each[_TOKENS:] for each in tokens]
                        of_kind["vllm"] = vllm_step(sampling, prompts, outputs)
                    with torch.inference_mode():
                        found = take_turns(of_kind, logits, options)
                    share = found["baton"] / steps[batch]
                    row = [found["baton"] * 1e3, share]
                    if peer:
                        row += [found["vllm"] * 1e3, found["baton"] / found["vllm"]]
                    table.row(str(vocab), batch, shape, kind, *row)
                    results.append({**vars(setup), "kind": kind, "seconds": found, "share": share})
    return results


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vocabularies", type=int, nargs="+", default=[32_000, 131_072])
    parser.add_argument("--kind", default="", help="only draws whose name contains this")
    parser.add_argument("--alone", action="store_true", help="without vLLM")
    parser.add_argument("--step-ms", default="", help="duration of a decode step at batch 1, 8, 32")
    parser.add_argument("--least-seconds", type=float, default=0.2, help="per turn; default: 0.2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: with --threads 1")
    parser.add_argument("--native", choices=("auto", "off", "required"), default="required")
    parser.set_defaults(device="cpu", chunk_tokens=CHUNK_TOKENS, kv_bytes=2 << 30)


if __name__ == "__main__":
    cli.main(
        measure,
        __doc__,
        arguments,
        rounds=3,
        smallest="--rounds 1 --vocabularies 1000 --kind greedy --threads 1 --step-ms 20,30,60 "
        "--least-seconds 0.01 --alone",
    )
