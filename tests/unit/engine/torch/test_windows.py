"""Families with windows: pages behind them are gone, and the tokens are transformers' alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from baton.engine.base import BlockGoneError, Engine, SequenceRequest
from baton.engine.events import Admitted, BlocksReady, SampledTokens, SequenceEnded
from baton.engine.testing.random_families import WINDOW, make_family
from baton.engine.torch.kv.memory import PoolMemory
from baton.kv.layout import GroupKind
from tests.support.engine.contract import admit, drain, params, prompt, request, steps
from tests.support.engine.cuts import (
    Objects,
    compute_objects,
    names_of,
    read_objects,
    rules_of,
    write_missing,
)
from tests.support.engine.families import TOKENS, Outputs, assert_greedy, requests, unlike
from tests.unit.engine.conftest import MakeEngine

pytestmark = pytest.mark.xdist_group("transformers")

FAMILIES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "mistral": ({}, (WINDOW,)),
    "gemma2": ({}, (0, WINDOW)),
    "gemma3": ({}, (0, WINDOW)),
    "gpt-oss": ({}, (0, WINDOW)),
    "phi3": ({"sliding_window": WINDOW}, (WINDOW,)),
}
"""Changes of the configuration, and the windows of groups, 0 being full attention."""
BLOCK = 16
Kv = Mapping[int, Objects]
"""By id, what a sequence's cut needs."""


def run(engine: Engine, batch: Sequence[SequenceRequest], kv: Kv | None = None) -> Outputs:
    """Return the outputs of requests at once, from cuts with the given KV."""
    tokens: dict[int, list[int]] = {each.id: list(each.output) for each in batch}
    for each in batch:
        engine.add(each)
    for event in steps(engine):
        match event:
            case Admitted():
                write_missing(engine, event, {} if kv is None else kv[event.id])
                engine.start(event.id, event.ready_tokens)
            case SampledTokens():
                tokens[event.id].extend(event.token_ids)
            case SequenceEnded():
                engine.close(event.id)
    return [tuple(each) for each in tokens.values()]


def moved_after(each: SequenceRequest) -> int:
    """Tokens after which a sequence goes to another engine: other ones for each."""
    return 1 + (5 * each.id) % (TOKENS - 1)


def part(
    engine: Engine, batch: Sequence[SequenceRequest]
) -> tuple[list[SequenceRequest], dict[int, Objects]]:
    """Run requests at once, each to where it moves; return what goes on, and its cuts' KV."""
    moved: dict[int, SequenceRequest] = {}
    kv: dict[int, Objects] = {}
    outputs: dict[int, list[int]] = {each.id: [] for each in batch}
    given = {each.id: each for each in batch}
    for each in batch:
        engine.add(each)
    while len(moved) < len(batch):
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, event.ready_tokens)
            elif isinstance(event, SampledTokens) and event.id not in moved:
                output = outputs[event.id]
                output.extend(event.token_ids)
                asked = given[event.id]
                if len(output) == moved_after(asked):
                    known = len(asked.prompt) + len(output)
                    cut = (known - 1) // BLOCK * BLOCK
                    # Nothing had to be kept for it.
                    kv[event.id] = read_objects(engine, event.id, names_of(engine, [cut]))
                    moved[event.id] = replace(asked, output=tuple(output), cut_tokens=cut)
                    engine.close(event.id)
    return [moved[each.id] for each in batch], kv


def prefill(engine: Engine, number: int) -> None:
    """Compute a long prompt of its own next to what runs, and close it."""
    engine.add(request(number, prompt(300, seed=number), prefill_only=True))
    while True:
        for event in engine.step():
            if isinstance(event, Admitted):
                engine.start(event.id, event.ready_tokens)
            elif isinstance(event, SequenceEnded):
                engine.close(event.id)
                return


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_equal_those_of_transformers_alone(
    make_engine: MakeEngine, tmp_path: Path, family: str
) -> None:
    changes, windows = FAMILIES[family]
    model = unlike(make_family(family, tie_word_embeddings=False, **changes))
    model.set_attn_implementation("eager")  # others leave out softcaps
    model.save_pretrained(tmp_path)
    fields = {"model": tmp_path, "dtype": "float32", "context_tokens": 256}
    batch = requests()

    here = make_engine("native", **fields)
    groups = here.info.layout.groups
    assert [group.span_tokens for group in groups] == list(windows)
    assert [group.kind is GroupKind.FULL for group in groups] == [not each for each in windows]
    expected = run(here, batch)
    assert_greedy(model, batch, expected)
    for each in batch:
        assert admit(here, each).cached_tokens == (len(each.prompt) - 1) // BLOCK * BLOCK
        here.close(each.id)
    assert run(here, batch) == expected, "from the prefix cache"

    here.evict_blocks()
    there = make_engine("native", **fields, chunk_tokens=24)
    cuts = {each.id: len(each.prompt) - 1 for each in batch}  # most end within a block
    kv = {each.id: compute_objects(here, each.prompt, [cuts[each.id]]) for each in batch}
    split = [replace(each, cut_tokens=cuts[each.id]) for each in batch]
    assert run(there, split, kv) == expected, "with the KV of another engine"
    for each in batch:
        counts = [len(blocks) for blocks in rules_of(here).needed(cuts[each.id])]
        assert len(kv[each.id]) == sum(counts)
        assert windows[-1] == 0 or counts[-1] <= WINDOW // BLOCK + 1

    there.evict_blocks()
    going_on, kv = part(here, batch)
    assert run(there, going_on, kv) == expected, "moved at different tokens, on in chunks"

    plain = make_engine(**fields, chunk_tokens=40)
    assert run(plain, batch) == expected, "in plain torch"
    plain.evict_blocks()
    going_on, kv = part(plain, batch)
    assert run(plain, going_on, kv) == expected, "moved in plain torch"


def test_in_bfloat16_a_cut_goes_on_with_the_bits_of_the_prompt_alone(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    make_family("gemma3").save_pretrained(tmp_path)
    here = make_engine("bf16", model=tmp_path)
    there = make_engine("bf16", model=tmp_path, chunk_tokens=24)
    tokens = prompt(200)
    last = len(tokens) - 1
    whole = compute_objects(here, tokens, [last])
    for cut in (80, 96, 112):
        kv = compute_objects(here, tokens, [cut])
        asked = request(1, tokens, cut_tokens=cut, prefill_only=True)
        admitted = admit(there, asked)
        write_missing(there, admitted, kv)
        there.keep_cuts(1, [last])
        there.start(1, cut)
        drain(there)
        found = read_objects(there, 1, names_of(there, [last]))
        assert found == whole
        there.close(1)
        there.evict_blocks()
        drain(there)


def test_a_window_page_taken_while_it_is_copied_is_gone(
    make_engine: MakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sequence takes the page in the very step in which it is published."""
    make_family("gemma3").save_pretrained(tmp_path)
    fields = {"model": tmp_path, "dtype": "float32", "context_tokens": 400}
    engine = make_engine(**fields, kv_bytes=34 * BLOCK * 4 * 512)
    tokens = prompt(100)
    admitted = admit(engine, request(1, tokens, sampling=params(max_tokens=250)))
    engine.start(1, admitted.ready_tokens)
    while not any(isinstance(event, BlocksReady) for event in engine.step()):
        pass
    read = PoolMemory.read_pages
    taken: list[int] = []
    before: list[bytes] = []

    def race(self: PoolMemory, pages: Sequence[int], out: Sequence[memoryview]) -> None:
        if not taken:
            taken.extend(pages)
            read(self, pages, out)
            before.append(bytes(out[0]))
            for _ in range(60):  # decodes past the window
                engine.step()
            for number in (2, 3):  # the second of them finds no page that was never used
                prefill(engine, number)
        read(self, pages, out)

    monkeypatch.setattr(PoolMemory, "read_pages", race)
    data = memoryview(bytearray(engine.info.object_bytes[1]))
    with pytest.raises(BlockGoneError, match="as it was copied"):
        engine.read_blocks(1, [4], [data], 1)
    assert bytes(data) != before[0], "another sequence did not take the page"
    engine.close(1)
