"""Pages of several groups in vLLM's own cache manager, without a model: what a cut needs is there.

A page remembers which block of which group was written into it last, so that a page that went to
another, or a cut that lacks a block, shows.
"""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from baton.engine.paged.sequence import NO_PAGE
from baton.kv.cuts import CutRules
from baton.kv.keys import full_block_key, token_bytes
from baton.kv.layout import GroupKind, KvGroup

pytestmark = pytest.mark.vllm

BLOCK = 4
CONTEXT = 96
FULL = KvGroup(GroupKind.FULL, 1)
TABLES = {
    "window": (FULL, KvGroup(GroupKind.WINDOW, 1, 7)),
    "windows": (FULL, KvGroup(GroupKind.WINDOW, 1, 10), KvGroup(GroupKind.WINDOW, 1, 5)),
    "chunk": (FULL, KvGroup(GroupKind.CHUNK, 1, 16)),
    "state": (FULL, KvGroup(GroupKind.STATE, 1), KvGroup(GroupKind.STATE, 1)),
}


def spec_of(group: KvGroup) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import (
        ChunkedLocalAttentionSpec,
        FullAttentionSpec,
        MambaSpec,
        SlidingWindowSpec,
    )

    shape = {"block_size": BLOCK, "num_kv_heads": 1, "head_size": 32, "dtype": torch.float32}
    match group.kind:
        case GroupKind.FULL:
            return FullAttentionSpec(**shape)
        case GroupKind.WINDOW:
            return SlidingWindowSpec(sliding_window=group.span_tokens, **shape)
        case GroupKind.CHUNK:
            return ChunkedLocalAttentionSpec(attention_chunk_size=group.span_tokens, **shape)
        case GroupKind.STATE:
            return MambaSpec(
                block_size=BLOCK,
                shapes=((256,),),
                dtypes=(torch.float32,),
                mamba_cache_mode="align",
            )


class Cache:
    """vLLM's cache manager, and what its pages hold."""

    def __init__(self, groups: Sequence[KvGroup], pages: int) -> None:
        from vllm.v1.core.kv_cache_manager import KVCacheManager
        from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec

        from baton.engine.vllm.groups.tables import BlockTables

        self.groups = groups
        self.rules = CutRules(tuple(groups), BLOCK)
        # vLLM's order is another: full attention last.
        order = [len(groups) - 1, *range(len(groups) - 1)]
        specs = [spec_of(group) for group in (*groups[1:], groups[0])]
        named = [KVCacheGroupSpec([f"layer.{i}"], spec) for i, spec in enumerate(specs)]
        self.manager = KVCacheManager(
            KVCacheConfig(num_blocks=pages, kv_cache_tensors=[], kv_cache_groups=named),
            max_model_len=CONTEXT,
            scheduler_block_size=BLOCK,
            hash_block_size=BLOCK,
        )
        self.tables = BlockTables(self.manager, order, self.rules)
        self.held: dict[int, tuple[int, bytes]] = {}
        """Group and key of the block that was written into a page last."""

    @property
    def free(self) -> int:
        return int(self.manager.block_pool.get_num_free_blocks())


class Computed:
    """One request, as vLLM's scheduler treats it."""

    def __init__(self, cache: Cache, name: str, tokens: Sequence[int], asked: int) -> None:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        def hasher(request: Any) -> list[bytes]:
            return self.keys[len(request.block_hashes) : request.num_tokens // BLOCK]

        self.keys: list[bytes] = []
        for at in range(0, len(tokens) // BLOCK * BLOCK, BLOCK):
            previous = self.keys[-1] if self.keys else b"root"
            self.keys.append(full_block_key(previous, token_bytes(tokens[at : at + BLOCK])))
        self.cache = cache
        self.name = name
        self.request = Request(
            name, list(tokens), SamplingParams(max_tokens=1), None, block_hasher=hasher
        )
        self.found = cache.tables.find(self.keys, len(tokens) - 1, asked)

    def admit(self) -> bool:
        """Take pages for the cut, and write what it lacks; False: there are none."""
        cache, found = self.cache, self.found
        if found.tokens == 0:
            return True
        cache.manager.new_step_starts()
        taken = cache.manager.allocate_slots(
            self.request,
            0,
            num_new_computed_tokens=0,
            new_computed_blocks=cache.manager.create_kv_cache_blocks(found.blocks),
            num_external_computed_tokens=found.tokens,
            delay_cache_blocks=True,
        )
        if taken is None:
            return False
        self.request.num_computed_tokens = found.tokens
        tables = cache.tables.tables(self.name)
        for group, blocks in enumerate(found.missing):
            for block in blocks:
                assert tables[group][block] != NO_PAGE
                cache.held[tables[group][block]] = (group, self.key(block))
        cache.manager.cache_blocks(self.request, found.tokens)
        self.check(found.tokens)
        return True

    def key(self, block: int) -> bytes:
        return self.keys[block] if block < len(self.keys) else b"partial of " + self.name.encode()

    def check(self, cut: int) -> None:
        """Check that what a cut needs is in the pages of the sequence."""
        tables = self.cache.tables.tables(self.name)
        for group, blocks in enumerate(self.cache.rules.needed(cut)):
            for block in blocks:
                page = tables[group][block]
                assert self.cache.held[page] == (group, self.key(block))
                assert self.cache.tables.holds(self.name, group, block, page)

    def compute(self, count: int) -> bool:
        """Compute a chunk; False: there are no pages."""
        cache, rules, request = self.cache, self.cache.rules, self.request
        start = request.num_computed_tokens
        end = min(start + count, request.num_tokens)
        last_boundary = (end - (end == request.num_tokens)) // BLOCK * BLOCK
        if rules.ends_on_blocks and start < last_boundary:
            end = last_boundary  # as vLLM's scheduler does, so that there is a state
        if cache.manager.allocate_slots(request, end - start) is None:
            return False
        # What is read before the chunk overwrites anything: the cut at its start, if it is one.
        if rules.floor(start) == start:
            self.check(start)
        tables = cache.tables.tables(self.name)
        for group in range(len(cache.groups)):
            for block in range(start // BLOCK, -(-end // BLOCK)):
                if (page := tables[group][block]) != NO_PAGE:
                    cache.held[page] = (group, self.key(block))
        request.num_computed_tokens = end
        if (last := end // BLOCK * BLOCK) >= self.found.tokens:
            self.check(last)  # it can be published at any time
        return True

    def close(self) -> None:
        self.cache.tables.forget(self.name)
        self.cache.manager.free(self.request)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("seed", range(6))
def test_a_cut_that_is_found_can_be_continued(table: str, seed: int) -> None:
    draw = random.Random(seed)
    cache = Cache(TABLES[table], pages=110)
    free = cache.free
    beginnings = [[draw.randrange(9) for _ in range(80)] for _ in range(3)]
    running: list[Computed] = []
    reused = written = 0
    for number in range(60):
        shared = draw.randrange(80)
        tail = [draw.randrange(9) for _ in range(draw.randrange(1, 15))]
        tokens = draw.choice(beginnings)[:shared] + tail
        cuts = [*range(0, len(tokens), BLOCK), cache.rules.floor(len(tokens) - 1)]
        asked = draw.choice(cuts) if draw.random() < 0.5 else 0
        one = Computed(cache, f"s{number}", tokens, asked)
        reused += one.found.cached_tokens > 0
        written += bool(one.found.missing)
        if not one.admit():
            one.close()
            continue
        running.append(one)
        for other in list(running):
            for _ in range(draw.randrange(4)):
                left = other.request.num_tokens - other.request.num_computed_tokens
                if left == 0 or not other.compute(draw.randrange(1, 24)):
                    running.remove(other)
                    other.close()
                    break
    for other in running:
        other.close()
    assert reused > 5
    assert written > 5
    assert cache.free == free


@pytest.mark.parametrize("table", TABLES)
def test_a_block_that_left_is_gone_and_a_kept_one_is_not(table: str) -> None:
    cache = Cache(TABLES[table], pages=60)
    free = cache.free
    tokens = list(range(80))
    one = Computed(cache, "one", tokens, 0)
    kept = 24
    places = {
        (group, block)
        for group, blocks in enumerate(cache.rules.needed(kept))
        for block in blocks
        if group
    }
    cache.tables.keep("one", places)
    seen = []
    while one.request.num_computed_tokens < len(tokens):
        assert one.compute(8)
        seen.append(cache.tables.tables("one"))
        if one.request.num_computed_tokens >= kept:
            one.check(kept)
    for group in range(1, len(cache.groups)):
        first = next(pages[group][0] for pages in seen)
        assert cache.tables.tables("one")[group][0] == NO_PAGE
        assert not cache.tables.holds("one", group, 0, first)
    cache.tables.keep("one", set())
    tables = cache.tables.tables("one")
    assert all(tables[group][block] == NO_PAGE for group, block in places)
    one.check(len(tokens))
    one.close()
    assert cache.free == free


def test_what_is_kept_does_not_stop_a_running_request() -> None:
    cache = Cache(TABLES["window"], pages=20)
    one = Computed(cache, "one", list(range(60)), 0)
    cache.tables.keep("one", {(1, block) for block in range(12)})
    one.request.status = type(one.request.status).RUNNING
    while one.request.num_computed_tokens < 60:
        assert one.compute(4)
    assert cache.tables.tables("one")[1][0] == NO_PAGE
    one.close()
    assert cache.free == 19
