"""Prompts that begin alike, and their outputs."""

import random
from collections.abc import Iterable, Sequence

from baton.engine.base import Engine, SequenceRequest
from baton.engine.local import LocalOutput, run_local
from baton.sampling import SamplingParams

Prompt = tuple[int, ...]

LENGTHS = (480, 160, 320)
"""Of the prompts of one beginning; the longest first, so that it brings the others' KV."""
BESIDE = (0, -1, 1)
"""Tokens that the prompts of a beginning are longer: ends of blocks, windows and chunks, and next
to them.
"""
_ROOT = b"root"


def prompts_of(
    beginnings: int, vocab_tokens: int, lengths: Sequence[int] = LENGTHS
) -> list[Prompt]:
    """Return random prompts, of these lengths for each beginning; the same in each process."""
    found = []
    for seed in range(beginnings):
        draw = random.Random(seed)
        longer = BESIDE[seed % len(BESIDE)]
        longest = tuple(draw.randrange(vocab_tokens) for _ in range(max(lengths) + longer))
        found += [longest[: length + longer] for length in lengths]
    return found


def run(engine: Engine, prompts: Iterable[Prompt], output_tokens: int) -> list[LocalOutput]:
    """Return the greedy outputs of prompts that run together."""
    params = SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True)
    requests = [SequenceRequest(n, _ROOT, prompt, params) for n, prompt in enumerate(prompts)]
    return run_local(engine, requests)
