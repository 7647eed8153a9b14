"""Ways in which an engine computes an output: from its own cache, or from KV that was brought."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, SampledTokens
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


def prompts_of(beginnings: int, vocab_tokens: int) -> list[Prompt]:
    """Return random prompts, `LENGTHS` of each beginning; the same in each process."""
    found = []
    for seed in range(beginnings):
        draw = random.Random(seed)
        lengths = [length + BESIDE[seed % len(BESIDE)] for length in LENGTHS]
        longest = tuple(draw.randrange(vocab_tokens) for _ in range(max(lengths)))
        found += [longest[:length] for length in lengths]
    return found


@dataclass(frozen=True)
class Begun:
    """An output that one engine began: its tokens, and the KV that was read out, by key."""

    output: tuple[int, ...] = ()
    blocks: Mapping[bytes, bytes] = field(default_factory=dict)


def run(engine: Engine, prompts: Iterable[Prompt], output_tokens: int) -> list[LocalOutput]:
    """Return the greedy outputs of prompts that run together."""
    params = SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True)
    requests = [SequenceRequest(n, _ROOT, prompt, params) for n, prompt in enumerate(prompts)]
    return run_local(engine, requests)


def continue_output(
    engine: Engine, prompt: Prompt, begun: Begun, until: int, output_tokens: int
) -> Begun:
    """Continue an output on an engine that has forgotten it, and read its KV out.

    Args:
        engine: has no other sequence.
        prompt: of the sequence.
        begun: what is written back.
        until: length of the output at which the sequence leaves the engine.
        output_tokens: length of the whole output.
    """
    engine.evict_blocks()
    params = SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True)
    engine.add(SequenceRequest(0, _ROOT, prompt, params, output=begun.output))
    output = list(begun.output)
    keys: dict[int, bytes] = {}
    try:
        while len(output) < until:
            for event in engine.step():
                match event:
                    case Admitted():
                        _write(engine, event.keys, begun.blocks)
                    case SampledTokens():
                        output.extend(event.token_ids)
                    case BlocksReady():
                        keys |= dict(enumerate(event.keys, event.first_index))
        blocks = _read(engine, keys)
    finally:
        engine.close(0)
    return Begun(tuple(output), blocks)


def _write(engine: Engine, keys: Sequence[bytes], blocks: Mapping[bytes, bytes]) -> None:
    found = [blocks[key] for key in takewhile(blocks.__contains__, keys)]
    if found:
        engine.write_blocks(0, range(len(found)), memoryview(b"".join(found)))
    engine.start(0, len(found) * engine.info.layout.block_tokens)


def _read(engine: Engine, keys: Mapping[int, bytes]) -> dict[bytes, bytes]:
    places = [memoryview(bytearray(engine.info.block_bytes)) for _ in keys]
    engine.read_blocks(0, list(keys), places)
    return dict(zip(keys.values(), map(bytes, places), strict=True))
