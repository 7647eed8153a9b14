"""An output that one engine begins and another continues, from KV that is carried in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, SampledTokens
from baton.kv.cuts import cut_rules
from baton.sampling import SamplingParams


@dataclass(frozen=True)
class Begun:
    """An output that one engine began: its tokens, and the KV that was read out."""

    output: tuple[int, ...] = ()
    blocks: Mapping[tuple[int, int], bytes] = field(default_factory=dict)
    """What the cut of the last full block needs, by group and block."""
    cut_tokens: int = 0


def continue_output(
    engine: Engine, prompt: Sequence[int], begun: Begun, until: int, output_tokens: int
) -> Begun:
    """Continue a greedy output on an engine that has forgotten it, and read its KV out.

    Args:
        engine: has no other sequence.
        prompt: of the sequence.
        begun: what is written back.
        until: length of the output at which the sequence leaves the engine.
        output_tokens: length of the whole output.

    Raises:
        ValueError: the engine takes pages for another cut.
    """
    engine.evict_blocks()
    rules = cut_rules(engine.info.layout)
    asked = begun.cut_tokens if engine.info.layout.groups else 0
    params = SamplingParams(temperature=0, max_tokens=output_tokens, ignore_eos=True)
    engine.add(SequenceRequest(0, b"root", prompt, params, output=begun.output, cut_tokens=asked))
    output = list(begun.output)
    ready = 0
    try:
        while len(output) < until:
            for event in engine.step():
                match event:
                    case Admitted():
                        if asked not in (0, event.ready_tokens):
                            raise ValueError(f"a cut of {event.ready_tokens} tokens, not {asked}")
                        _write(engine, begun)
                        engine.start(0, begun.cut_tokens)
                    case SampledTokens():
                        output.extend(event.token_ids)
                    case BlocksReady():
                        ready = event.first_index + len(event.keys)
        cut = ready * rules.block_tokens
        blocks = _read(engine, rules.needed(cut))
    finally:
        engine.close(0)
    return Begun(tuple(output), blocks, cut)


def _write(engine: Engine, begun: Begun) -> None:
    for group, blocks in enumerate(cut_rules(engine.info.layout).needed(begun.cut_tokens)):
        if blocks:
            data = b"".join(begun.blocks[group, block] for block in blocks)
            engine.write_blocks(0, blocks, memoryview(data), group)


def _read(engine: Engine, needed: Sequence[Sequence[int]]) -> dict[tuple[int, int], bytes]:
    found: dict[tuple[int, int], bytes] = {}
    for group, blocks in enumerate(needed):
        places = [memoryview(bytearray(engine.info.object_bytes[group])) for _ in blocks]
        engine.read_blocks(0, blocks, places, group)
        found |= {(group, block): bytes(each) for block, each in zip(blocks, places, strict=True)}
    return found
