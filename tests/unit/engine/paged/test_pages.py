"""The pool counts exactly: nothing is lost, nothing is given twice."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.engine.events import CachedBlock
from baton.engine.paged.page_pool import PagePool
from tests.support.examples import examples

PAGES = 6


def key(number: int) -> bytes:
    return number.to_bytes(16, "little")


def block(number: int, previous: bytes = b"") -> CachedBlock:
    return CachedBlock(key(number), previous)


class PoolMachine(RuleBasedStateMachine):
    """Holders come and go; a model of who holds what says what the pool must say."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(PAGES)
        self.held: list[list[int]] = []
        self.next_key = 0
        self.now = 0.0
        self.since: dict[int, float] = {}
        """When the last holder of a page let go of it."""
        self.block_of: dict[int, bytes] = {}
        """The key of what is in a page, as far as it was registered."""

    @rule()
    def allocate(self) -> None:
        before = self.pool.available
        page = self.pool.allocate()
        assert (page is None) == (before == 0)
        if page is None:
            return
        assert all(page not in pages for pages in self.held)
        self.block_of.pop(page, None)
        self.held.append([page])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def register(self, data: st.DataObject) -> None:
        page = data.draw(st.sampled_from(self.held))[0]
        number = data.draw(st.integers(0, self.next_key))
        name = key(number)
        self.next_key += 1
        known = self.pool.match([name])
        self.pool.register(block(number), page)
        if not known and page not in self.block_of:
            self.block_of[page] = name

    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        name = key(data.draw(st.integers(0, max(0, self.next_key))))
        found = self.pool.match([name])
        for page in found:
            assert self.block_of[page] == name
            self.pool.retain(page)
            self.held.append([page])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        self.now += 1
        self.since.update(dict.fromkeys(self.held[index], self.now))
        self.pool.release(self.held.pop(index), self.now)

    @rule(data=st.data())
    def evict_idle(self, data: st.DataObject) -> None:
        until = data.draw(st.integers(0, int(self.now)))
        names = {key(n) for n in data.draw(st.sets(st.integers(0, self.next_key)))}
        holders = Counter(page for pages in self.held for page in pages)
        idle = {p for p in self.block_of if holders[p] == 0 and self.since[p] <= until}
        listed = self.pool.idle_blocks(until)
        assert {each.key for each in listed} == {self.block_of[page] for page in idle}
        dropped = {page for page in idle if self.block_of[page] in names}
        before = self.pool.available
        assert self.pool.evict_idle(names, until) == len(dropped)
        assert self.pool.available == before
        for page in dropped:
            assert not self.pool.match([self.block_of.pop(page)])

    @rule()
    def drop_all_idle(self) -> None:
        holders = Counter(page for pages in self.held for page in pages)
        idle = {page for page in self.block_of if holders[page] == 0}
        before = self.pool.available
        assert self.pool.evict_idle() == len(idle)
        assert self.pool.available == before
        for page in idle:
            del self.block_of[page]

    @invariant()
    def counts_agree(self) -> None:
        holders = Counter(page for pages in self.held for page in pages)
        assert [self.pool.holders(page) for page in range(PAGES)] == [
            holders[page] for page in range(PAGES)
        ]
        assert self.pool.available == PAGES - len(holders)

    def teardown(self) -> None:
        for pages in self.held:
            self.pool.release(pages, self.now)
        assert self.pool.available == PAGES


PoolMachine.TestCase.settings = settings(max_examples=examples(24), stateful_step_count=40)
TestPool = PoolMachine.TestCase


def test_a_page_cannot_be_released_more_often_than_held() -> None:
    pool = PagePool(2)
    page = pool.allocate()
    assert page is not None
    pool.release([page], 0)
    with pytest.raises(OverflowError):
        pool.release([page], 0)


def test_the_end_of_the_longest_idle_chain_is_taken_first() -> None:
    pool = PagePool(4)
    chains = []
    for chain in range(2):
        pages = [page for page in (pool.allocate(), pool.allocate()) if page is not None]
        for index, page in enumerate(pages):
            previous = key(10 * chain + index - 1) if index else b""
            pool.register(block(10 * chain + index, previous), page)
        chains.append(pages)
    for now, pages in enumerate(chains):
        pool.release(pages, now)
    assert pool.idle == 4
    assert pool.idle_blocks(until=0) == [block(1, key(0)), block(0)]
    assert [pool.allocate() for _ in range(3)] == [chains[0][1], chains[0][0], chains[1][1]]
    assert pool.take_evicted() == (key(1), key(0), key(11))
    assert pool.take_evicted() == ()
    assert pool.match([key(10), key(11)]) == [chains[1][0]]


def test_a_found_idle_page_does_not_count_as_room_for_others() -> None:
    pool = PagePool(2)
    page = pool.allocate()
    assert page is not None
    pool.register(block(0), page)
    pool.release([page], 0)
    found = pool.match([key(0)])
    assert pool.fits(found, 1)
    assert not pool.fits(found, 2)


def test_the_last_claim_counts_and_only_its_owner_takes_it_back() -> None:
    pool = PagePool(1)
    pool.claim([key(0), key(1)], owner=1)
    pool.claim([key(0)], owner=2)
    pool.unclaim([key(0), key(1)], owner=1)
    assert pool.claimed_by(key(0)) == 2
    assert pool.claimed_by(key(1)) is None
    page = pool.allocate()
    assert page is not None
    pool.register(block(0), page)
    assert pool.claims == 0
