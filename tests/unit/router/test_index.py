"""The prefix index answers exactly what a brute-force search over all events answers."""

import random
import shutil
from collections.abc import Callable
from itertools import product, takewhile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baton.compiled.files import DIRECTORY_ENV
from baton.compiled.library import C
from baton.kv.keys import pack
from services.router.prefix_index.blocks.build import library
from services.router.prefix_index.blocks.dict_table import DictTable
from services.router.prefix_index.blocks.native_table import NativeTable
from services.router.prefix_index.blocks.table import BlockTable, choose_table
from services.router.prefix_index.holder_sets import MAX_TRANSITIONS, MIN_SETS, HolderSets
from services.router.prefix_index.holders import DISK, DRAM, ENGINE
from services.router.prefix_index.index import PrefixIndex
from services.router.prefix_index.match import Coverage
from tests.support.examples import examples
from tests.support.router.placement import cover

KEYS = [bytes([i]) * 16 for i in range(6)]
SLOTS = [
    *product(("worker-a", "worker-b"), (ENGINE,)),
    *product(("store-a", "store-b"), (DRAM, DISK)),
]
HOLDERS = sorted({holder for holder, _ in SLOTS})
STORES = ("store-a", "store-b")

keys = st.lists(st.sampled_from(KEYS), max_size=6)
operations = st.one_of(
    st.tuples(st.just("stored"), st.sampled_from(SLOTS), keys),
    st.tuples(st.just("evicted"), st.sampled_from(SLOTS), keys),
    st.tuples(st.just("remove"), st.sampled_from(SLOTS), st.just([])),
    st.tuples(st.just("sweep"), st.sampled_from(SLOTS), keys),
)


class Truth:
    """What is held, as plain sets."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, int], set[bytes]] = {slot: set() for slot in SLOTS}

    def apply(self, kind: str, slot: tuple[str, int], chosen: list[bytes]) -> None:
        if kind == "stored":
            self.held[slot] |= set(chosen)
        elif kind == "evicted":
            self.held[slot] -= set(chosen)
        elif kind == "remove":
            for other in SLOTS:
                if other[0] == slot[0]:
                    self.held[other].clear()

    def has(self, holder: str, key: bytes) -> bool:
        return any(key in self.held[slot] for slot in SLOTS if slot[0] == holder)

    def leading(self, holders: tuple[str, ...], chain: list[bytes]) -> list[bytes]:
        return list(takewhile(lambda key: any(self.has(h, key) for h in holders), chain))

    def stores(self, chain: list[bytes]) -> list[str]:
        reached = self.leading(tuple(HOLDERS), chain)
        counts = {store: sum(self.has(store, key) for key in reached) for store in STORES}
        return sorted((s for s in STORES if counts[s]), key=lambda s: (-counts[s], s))

    def cover(self, worker: str, store: str, chain: list[bytes]) -> Coverage:
        engine = len(self.leading((worker,), chain))
        local = remote = 0
        for key in chain[engine:]:
            if key in self.held[store, DRAM]:
                local += 1
            elif any(self.has(holder, key) for holder in STORES):
                remote += 1
            else:
                break
        return Coverage(engine, local, remote)


def apply(index: PrefixIndex, kind: str, slot: tuple[str, int], chosen: list[bytes]) -> None:
    if kind == "stored":
        index.add_blocks(*slot, chosen)
    elif kind == "evicted":
        index.remove_blocks(*slot, chosen)
    elif kind == "remove":
        index.remove_holder(slot[0])
    else:
        index.sweep(len(chosen))


@pytest.fixture(params=["dict", "native"])
def make_table(request: pytest.FixtureRequest) -> Callable[[], BlockTable]:
    """Make tables of blocks of each kind."""
    if request.param == "dict":
        return DictTable
    if not any(map(shutil.which, C.compilers)):
        pytest.skip("the compiled table needs a C compiler")
    built = library().build()
    return lambda: NativeTable(built)


def test_the_compiled_table_is_used_where_it_was_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path))
    assert isinstance(choose_table().taken, DictTable)
    if any(map(shutil.which, C.compilers)):
        assert library().build() == library().build() == library().path
        assert isinstance(choose_table().taken, NativeTable)
    monkeypatch.setenv(DIRECTORY_ENV, str(tmp_path / "other"))
    library().path.parent.mkdir()
    library().path.write_text("no library")
    assert isinstance(choose_table().taken, DictTable)


@pytest.fixture
def index(make_table: Callable[[], BlockTable]) -> PrefixIndex:
    return PrefixIndex(table=make_table())


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(operations, max_size=25),
    keys,
    st.sampled_from([(MIN_SETS, MAX_TRANSITIONS), (1, MAX_TRANSITIONS), (1, 1)]),
)
def test_matches_equal_brute_force_after_any_events(
    make_table: Callable[[], BlockTable],
    history: list[tuple[str, tuple[str, int], list[bytes]]],
    chain: list[bytes],
    limits: tuple[int, int],
) -> None:
    index, truth = PrefixIndex(HolderSets(*limits), make_table()), Truth()
    for kind, slot, chosen in history:
        apply(index, kind, slot, chosen)
        truth.apply(kind, slot, chosen)
    match = index.match(chain)
    assert index.match_packed(pack(chain)).runs == match.runs
    assert match.stores() == truth.stores(chain)
    assert cover(match, "none", "none").remote == len(truth.leading(STORES, chain))
    for worker, store in product(("worker-a", "worker-b"), STORES):
        assert cover(match, worker, store) == truth.cover(worker, store, chain)
    while index.sweep(2):
        pass
    assert len(index) == len(set().union(*truth.held.values()))


def test_stores_are_named_by_how_much_they_hold(index: PrefixIndex) -> None:
    index.add_blocks("store-a", DRAM, KEYS[:1])
    index.add_blocks("store-b", DRAM, KEYS[:3])
    index.add_blocks("worker-a", ENGINE, KEYS[:4])
    assert index.match(KEYS).stores() == ["store-b", "store-a"]


def test_pages_of_other_engines_cover_nothing(index: PrefixIndex) -> None:
    index.add_blocks("worker-a", ENGINE, KEYS)
    assert cover(index.match(KEYS), "worker-b", "store-b") == Coverage()
    assert cover(index.match(KEYS), "worker-a", "store-a") == Coverage(engine=6)


def test_an_island_in_own_pages_is_fetched_like_anything_else(index: PrefixIndex) -> None:
    index.add_blocks("store-b", DRAM, KEYS)
    index.add_blocks("worker-a", ENGINE, KEYS[2:4])
    assert cover(index.match(KEYS), "worker-a", "store-a") == Coverage(remote=6)


def test_an_island_in_own_pages_after_blocks_of_the_own_store_is_fetched_too(
    index: PrefixIndex,
) -> None:
    index.add_blocks("store-a", DRAM, KEYS[:4])
    index.add_blocks("worker-a", ENGINE, KEYS[2:])
    assert cover(index.match(KEYS), "worker-a", "store-a") == Coverage(local=4)


def test_holders_that_come_and_go_for_ever_use_no_more_bits_than_live_ones(
    index: PrefixIndex,
) -> None:
    for _ in range(100):
        index.add_blocks("store-a", DRAM, KEYS)
        index.add_blocks("worker-a", ENGINE, KEYS)
        index.remove_holder("store-a")
        while index.sweep(100):
            pass
    index.add_blocks("store-a", DRAM, KEYS)
    (mask, blocks), *_ = index.match(KEYS).runs
    assert blocks == len(KEYS)
    assert mask.bit_length() <= 2


def test_blocks_with_equal_holders_share_one_set_and_sets_without_blocks_go(
    make_table: Callable[[], BlockTable],
) -> None:
    sets = HolderSets(min_sets=8)
    index = PrefixIndex(sets, make_table())
    many = [number.to_bytes(16, "big") for number in range(1000)]
    for holder in ("store-a", "store-b"):
        index.add_blocks(holder, DRAM, many)
    assert len(sets) == 3  # none, the first, both
    most = 0
    for number in range(100):  # each batch begins sets that none of the others has
        index.add_blocks(f"w{number}", ENGINE, many[:10])
        index.remove_blocks(f"w{number}", ENGINE, many[:5])
        most = max(most, len(sets))
    assert 3 < most <= 8
    assert cover(index.match(many[5:10]), "w7", "store-b") == Coverage(engine=5)
    assert cover(index.match(many), "w7", "store-b") == Coverage(local=1000)


def test_a_worker_without_a_store_can_fetch_nothing(index: PrefixIndex) -> None:
    index.add_blocks("store-b", DRAM, KEYS)
    index.add_blocks("worker-a", ENGINE, KEYS[:2])
    assert cover(index.match(KEYS), "worker-a", "") == Coverage(engine=2)


def test_a_removed_holder_is_gone_before_its_keys_are_swept(index: PrefixIndex) -> None:
    index.add_blocks("store-a", DRAM, KEYS)
    index.add_blocks("store-b", DRAM, KEYS[:2])
    index.remove_holder("store-a")
    assert index.match(KEYS).stores() == ["store-b"]
    assert cover(index.match(KEYS), "worker-a", "store-b") == Coverage(local=2)
    assert index.sweep(3)
    assert not index.sweep(3)
    assert len(index) == 2


def test_a_holder_that_returns_before_the_sweep_has_only_what_it_says_anew(
    index: PrefixIndex,
) -> None:
    index.add_blocks("store-a", DRAM, KEYS)
    index.remove_holder("store-a")
    index.add_blocks("store-a", DRAM, KEYS[:1])
    assert cover(index.match(KEYS), "worker-a", "store-a") == Coverage(local=1)
    while index.sweep(1):
        pass
    assert cover(index.match(KEYS), "worker-a", "store-a") == Coverage(local=1)


def test_tiers_of_later_releases_are_ignored(index: PrefixIndex) -> None:
    index.add_blocks("store-a", 99, KEYS)
    assert len(index) == 0


def test_tables_keep_what_they_hold_while_they_grow_shrink_and_are_swept(
    make_table: Callable[[], BlockTable],
) -> None:
    draw = random.Random(1)
    many = [draw.randbytes(16) for _ in range(20_000)]
    index = PrefixIndex(table=make_table())
    held: dict[str, set[bytes]] = {name: set() for name in ("a", "b", "c")}
    for turn in range(60):
        name = draw.choice(sorted(held))
        batch = draw.sample(many, draw.choice((1, 100, 3000)))
        if turn % 9 == 8:
            index.remove_holder(name)
            held[name].clear()
        elif turn % 3:
            index.add_blocks(name, DRAM, batch)
            held[name] |= set(batch)
        else:
            index.remove_blocks(name, DRAM, batch)
            held[name] -= set(batch)
        index.sweep(700)
        for key in draw.sample(many, 50):
            assert index.match([key]).stores() == sorted(n for n in held if key in held[n])
    while index.sweep(5000):
        pass
    assert len(index) == len(set().union(*held.values()))
    for key in many:
        assert index.match([key]).stores() == sorted(n for n in held if key in held[n])
    for name in held:
        index.remove_holder(name)
    while index.sweep(5000):
        pass
    assert len(index) == 0
