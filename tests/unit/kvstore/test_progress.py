"""A full arena with many waiters makes progress, and would not by other rules.

Three rules keep it going. Each has a load here that it survives without help from the others, and
that brings a store without it to a standstill: a state in which no writer gets room and no reader
gets anything, so that nothing can ever change again.

- Objects are handed out one by one, not a read as a whole.
- A read holds no more than its window.
- A lease lapses.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.kvstore.memory.slot import Lease
from tests.support.examples import examples
from tests.unit.kvstore.conftest import PAGE, Reader, World, make_world, object_id

PAGES = 16
"""Of the arena, an object per page; half of it may be pinned."""
UNBOUNDED = 1 << 30


@dataclass(eq=False)
class Asking:
    """A reader that copies what it gets and gives it back, or does not."""

    reader: Reader
    numbers: list[int]
    stopped: bool = False
    """Gives nothing back, like a process that was frozen."""
    whole: bool = False
    """Gives nothing back before it has everything: the store hands out reads as a whole."""
    released: set[int] = field(default_factory=set)

    @property
    def complete(self) -> bool:
        return len(self.reader.ready) == len(self.numbers)

    def copy(self, world: World) -> bool:
        """Give back what it may; answers whether that was anything."""
        if self.stopped or (self.whole and not self.complete):
            return False
        new = self.reader.ready.keys() - self.released
        self.released |= new
        for index in new:
            world.release(self.reader.ready[index])
        return bool(new)


@dataclass
class Load:
    """Wants, and writers that write what is missing as soon as there is room."""

    world: World
    asking: list[Asking] = field(default_factory=list)

    def ask(self, *numbers: int, stopped: bool = False, whole: bool = False) -> Asking:
        reader, _ = self.world.read(*numbers, wait=1e9)
        self.asking.append(Asking(reader, list(numbers), stopped, whole))
        return self.asking[-1]

    def run(self) -> bool:
        """Go on until every reader that is not stopped has everything; False at a standstill.

        No time passes. It ends: each round writes something or gives something to somebody, and
        there is only so much to give.
        """
        while True:
            live = [each for each in self.asking if not each.stopped]
            if all(each.complete for each in live):
                for each in live:
                    each.copy(self.world)
                return True
            if not self._round():
                return False

    def _round(self) -> bool:
        """Write what is missing, in the order in which reads have it next; copy what came."""
        before = sum(len(each.reader.ready) for each in self.asking)
        wrote = False
        depth = max(len(each.numbers) for each in self.asking)
        for place in range(depth):
            for each in self.asking:
                if place >= len(each.numbers) or place in each.reader.ready:
                    continue
                if self.world.table.get(object_id(each.numbers[place])) is None:
                    wrote |= self.world.put(each.numbers[place])
        assert self.world.table.pinned_bytes <= self.world.table.cap_bytes
        copied = [each.copy(self.world) for each in self.asking]
        got = sum(len(each.reader.ready) for each in self.asking) - before
        return wrote or got > 0 or any(copied)

    @property
    def pinned_pages(self) -> int:
        return self.world.table.pinned_bytes // PAGE


def reads_of_their_own(load: Load, count: int, each: int, *, whole: bool) -> None:
    for number in range(count):
        load.ask(*range(number * each, (number + 1) * each), whole=whole)


def test_objects_are_handed_out_one_by_one() -> None:
    """48 objects for 6 readers, through 16 pages."""
    load = Load(make_world(PAGES, UNBOUNDED))
    reads_of_their_own(load, 6, 8, whole=False)
    assert load.run()
    load.world.assert_nothing_held()


@pytest.mark.parametrize("capped", [True, False])
def test_a_store_that_hands_out_reads_as_a_whole_comes_to_a_standstill(capped: bool) -> None:
    load = Load(make_world(PAGES, UNBOUNDED, capped=capped))
    reads_of_their_own(load, 6, 8, whole=True)
    assert not load.run()
    # Everybody has something, nobody everything, and there is no room for what is missing.
    assert all(each.reader.ready and not each.complete for each in load.asking)
    assert load.pinned_pages == (PAGES // 2 if capped else PAGES)
    assert not load.world.put(1000)


def test_a_reader_that_stopped_holds_no_more_than_its_window() -> None:
    load = Load(make_world(PAGES, PAGES // 8 * PAGE))
    stopped = load.ask(*range(64), stopped=True)
    for _ in range(5):
        load.ask(*range(64))
    assert load.run()
    assert len(stopped.reader.ready) == load.pinned_pages == PAGES // 8


@pytest.mark.parametrize("capped", [True, False])
def test_without_a_window_one_reader_that_stopped_stops_all(capped: bool) -> None:
    load = Load(make_world(PAGES, UNBOUNDED, capped=capped))
    stopped = load.ask(*range(64), stopped=True)
    live = [load.ask(*range(64)) for _ in range(5)]
    assert not load.run()
    assert len(stopped.reader.ready) == load.pinned_pages == (PAGES // 2 if capped else PAGES)
    assert not any(each.complete for each in live)


def many_stopped(world: World) -> tuple[Load, Asking]:
    """As many readers as fill the cap with their windows stop; one does not."""
    load = Load(world)
    for number in range(4):
        load.ask(*range(100 * number, 100 * number + 8), stopped=True)
    return load, load.ask(*range(1000, 1040))


def test_when_many_readers_stop_it_goes_on_after_their_leases_lapsed() -> None:
    load, live = many_stopped(make_world(PAGES, PAGES // 8 * PAGE, lease_seconds=10))
    assert not load.run()
    assert load.pinned_pages == PAGES // 2
    rounds = 0
    while not load.run():
        load.world.pass_time(10)
        rounds += 1
        # 8 objects for each that stopped, a window of 2 at a time.
        assert rounds <= 8 / 2
    assert live.complete
    load.world.pass_time(10)
    assert load.pinned_pages == 0


def test_without_lapsing_many_readers_that_stop_stop_all() -> None:
    load, live = many_stopped(make_world(PAGES, PAGES // 8 * PAGE, lease_seconds=1e12))
    for _ in range(100):
        assert not load.run()
        load.world.pass_time(3600)
    assert not live.complete


def test_waiting_alone_holds_nothing_however_many_wait() -> None:
    load = Load(make_world(PAGES, UNBOUNDED))
    for number in range(200):
        load.ask(*range(number, number + 50))
    assert load.pinned_pages == 0
    assert load.run()
    load.world.assert_nothing_held()


@settings(max_examples=examples(12))
@given(
    pages=st.integers(4, 12),
    readers=st.integers(1, 6),
    objects=st.integers(1, 16),
    window=st.sampled_from([1, 2 * 4096, 1 << 30]),
    choices=st.randoms(use_true_random=False),
)
def test_a_full_arena_with_many_waiters_makes_progress(
    pages: int, readers: int, objects: int, window: int, choices
) -> None:
    """Whoever writes tries again when refused, whoever reads releases at some time: all end."""
    world = make_world(pages // 4 * 4, window)
    asked = [world.read(*range(objects), wait=1e6) for _ in range(readers)]
    held: list[list[Lease]] = [[] for _ in asked]
    seen: list[set[int]] = [set() for _ in asked]
    for _ in range(40 * objects * readers + 200):
        if all(len(each) == objects for each in seen) and not any(held):
            break
        for number in {n for n in range(objects) if not world.table.get(object_id(n))}:
            if choices.random() < 0.5:
                world.put(number)
        for place, (reader, _) in enumerate(asked):
            new = set(reader.ready) - seen[place]
            seen[place] |= new
            held[place] += [reader.ready[index] for index in sorted(new)]
            if held[place] and choices.random() < 0.7:
                world.release(held[place].pop(choices.randrange(len(held[place]))))
        assert world.table.pinned_bytes <= world.table.cap_bytes
    for reader, _ in asked:
        assert reader.done == 1
        assert set(reader.ready) == set(range(objects))
        for lease in reader.ready.values():
            world.release(lease)
    world.assert_nothing_held()
