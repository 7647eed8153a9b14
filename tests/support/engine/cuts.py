"""Move KV of layouts with groups between engines, by cuts, as a worker does."""

from collections.abc import Iterable, Mapping, Sequence

from baton.engine.base import Engine, SequenceRequest
from baton.engine.events import Admitted, Event
from baton.kv.cuts import CutRules, cut_rules
from tests.support.engine.contract import admit, drain, request

GROUP_TABLES = (
    "full,window:40",
    "window:64",
    "window:1,full",
    "full,chunk:48",
    "chunk:24,window:17",
    "full,state",
    "state",
    "full,window:40,chunk:40,state",
    "full,full,window:16",
    "window:33,window:8,full",
    "chunk:16,state",
)
"""Groups of the simulator in which each pair of kinds meets, and spans that end on blocks of 16 or
do not."""
Objects = dict[tuple[int, int], bytes]
"""Bytes by group and block."""


def rules_of(engine: Engine) -> CutRules:
    return cut_rules(engine.info.layout)


def read_objects(engine: Engine, sequence_id: int, names: Iterable[tuple[int, int]]) -> Objects:
    """Return objects of a sequence.

    Raises:
        BlockGoneError: the sequence has given one up.
    """
    found = {}
    for group, block in names:
        data = memoryview(bytearray(engine.info.object_bytes[group]))
        engine.read_blocks(sequence_id, [block], [data], group)
        found[group, block] = bytes(data)
    return found


def names_of(engine: Engine, cuts: Iterable[int]) -> list[tuple[int, int]]:
    """Return the objects that cuts need: group and block."""
    needed = [rules_of(engine).needed(cut) for cut in cuts]
    return sorted({(g, b) for each in needed for g, blocks in enumerate(each) for b in blocks})


def compute_objects(engine: Engine, tokens: Sequence[int], cuts: Sequence[int]) -> Objects:
    """Compute a prompt, and return what its cuts need; nothing of it stays in the engine."""
    admitted = admit(engine, request(901, tokens, prefill_only=True))
    engine.keep_cuts(901, cuts)
    engine.start(901, admitted.ready_tokens)
    drain(engine)
    found = read_objects(engine, 901, names_of(engine, cuts))
    engine.close(901)
    engine.evict_blocks()
    drain(engine)
    return found


def write_missing(
    engine: Engine, admitted: Admitted, objects: Mapping[tuple[int, int], bytes]
) -> int:
    """Write what an admitted sequence lacks; return the bytes."""
    count = 0
    for group, blocks in enumerate(admitted.missing):
        for block in blocks:
            data = memoryview(objects[group, block])
            engine.write_blocks(admitted.id, [block], data, group)
            count += data.nbytes
    return count


def continue_from(
    engine: Engine, asked: SequenceRequest, objects: Mapping[tuple[int, int], bytes]
) -> list[Event]:
    """Run a request from its cut with objects of another engine; return the events."""
    admitted = admit(engine, asked)
    write_missing(engine, admitted, objects)
    engine.start(asked.id, admitted.ready_tokens)
    return drain(engine)
