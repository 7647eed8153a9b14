"""A mirror equals what its log holds, whatever happens to the messages between them."""

import os

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from baton.internal.v1.kvevents_pb2 import (
    TIER_DISK,
    TIER_DRAM,
    BlockEvent,
    BlockRun,
    Events,
    Tier,
    WatchResponse,
)
from baton.kv.events.log import (
    CHANGE_BYTES,
    RING_KEYS,
    EventLog,
    SlowSubscriberError,
    Subscription,
)
from baton.kv.events.replica import BlockReplica, BlockSpace
from baton.kv.keys import unpack
from baton.kv.tiers import TIERS
from bench.harness.machine import rss_bytes
from tests.support.examples import examples

LAYOUTS = (b"1" * 16, b"2" * 16)


def key(number: int) -> bytes:
    return number.to_bytes(8, "big") * 2


def nothing() -> None:
    pass


class Replication(RuleBasedStateMachine):
    """A log, a mirror, and between them a stream that loses, doubles and reorders messages.

    Truth is kept apart from both. `index` is what a reader builds from the mirror's deltas alone.
    """

    every_nth = 1

    def __init__(self) -> None:
        super().__init__()
        self.epochs = 0
        self.mirror = BlockReplica(self.every_nth)
        self.index: dict[BlockSpace, set[bytes]] = {}
        self.travelling: list[WatchResponse] = []
        self.start()
        self.turn_of_the_loop()
        self.deliver(1)

    def start(self) -> None:
        self.epochs += 1
        # A ring of a few changes: some watches resume, some begin with a snapshot.
        ring_bytes = 8 * (CHANGE_BYTES + 16)
        self.log = EventLog(f"epoch-{self.epochs}", ring_bytes=ring_bytes, queue_keys=20)
        self.truth: dict[BlockSpace, set[bytes]] = {}
        self.watch()

    def watch(self) -> None:
        request = self.mirror.request()
        self.subscription: Subscription = self.log.subscribe(
            request.epoch, request.sequence, nothing, request.every_nth
        )
        self.mirror.opened()
        self.travelling.clear()

    def apply(self, message: WatchResponse) -> None:
        delta = self.mirror.apply(message)
        for space, keys in delta.removed.items():
            assert keys <= self.index[space]
            self.index[space] -= keys
        for space, keys in delta.added.items():
            assert not keys & self.index.get(space, set())
            self.index.setdefault(space, set()).update(keys)

    @rule(
        layout=st.sampled_from(LAYOUTS),
        tier=st.sampled_from(TIERS),
        group=st.integers(0, 1),
        numbers=st.lists(st.integers(0, 30), min_size=1, max_size=8),
        told=st.booleans(),
    )
    def change(
        self, layout: bytes, tier: Tier.ValueType, group: int, numbers: list[int], told: bool
    ) -> None:
        """What is nowhere is stored; what is in this tier goes; what is in another moves here."""
        for number in numbers:
            name = key(number)
            space = BlockSpace(layout, tier, group)
            here = self.truth.setdefault(space, set())
            others = [s for s in self.truth if s == (layout, s.tier, group) != space]
            before = next((s for s in others if name in self.truth[s]), None)
            if name in here:
                here.remove(name)
                self.log.evicted(layout, tier, name, group=group)
            elif before is not None:
                self.truth[before].remove(name)
                here.add(name)
                self.log.moved(layout, tier, name, group=group)
            else:
                here.add(name)
                self.log.stored(layout, tier, name, group=group)
        if told:
            self.turn_of_the_loop()

    @rule()
    def turn_of_the_loop(self) -> None:
        self.log.flush()
        try:
            while (message := self.subscription.take()) is not None:
                self.travelling.append(message)
        except SlowSubscriberError:
            self.watch()

    @rule(count=st.integers(1, 5))
    def deliver(self, count: int) -> None:
        for _ in range(min(count, len(self.travelling))):
            self.apply(self.travelling.pop(0))

    @precondition(lambda self: self.travelling)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        self.travelling.pop(data.draw(st.integers(0, len(self.travelling) - 1)))

    @precondition(lambda self: self.travelling)
    @rule(data=st.data())
    def double(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.travelling) - 1))
        self.travelling.insert(data.draw(st.integers(0, len(self.travelling))), self.travelling[at])

    @precondition(lambda self: len(self.travelling) > 1)
    @rule(data=st.data())
    def reorder(self, data: st.DataObject) -> None:
        self.travelling = data.draw(st.permutations(self.travelling))

    @rule()
    def the_stream_breaks(self) -> None:
        self.log.unsubscribe(self.subscription)
        self.watch()

    @rule()
    def the_store_restarts(self) -> None:
        self.start()

    @rule()
    def synchronize(self) -> None:
        """Heal: everything arrives, and a heartbeat tells of what was lost last."""
        for _ in range(3):
            self.turn_of_the_loop()
            for message in self.travelling:
                self.apply(message)
            self.travelling.clear()
            self.apply(self.log.heartbeat())
            if not self.mirror.stale:
                break
            self.log.unsubscribe(self.subscription)
            self.watch()
        assert not self.mirror.stale
        expected = {space: keys for space, keys in self.truth.items() if keys}
        assert self.log.contents() == expected
        thin = {
            space: {k for k in keys if k[7] % self.every_nth == 0}
            for space, keys in expected.items()
        }
        assert self.mirror.held == {space: keys for space, keys in thin.items() if keys}

    @invariant()
    def the_deltas_add_up_to_the_mirror(self) -> None:
        assert {space: keys for space, keys in self.index.items() if keys} == self.mirror.held

    def teardown(self) -> None:
        self.synchronize()


TestReplication = Replication.TestCase
TestReplication.settings = settings(max_examples=examples(32), stateful_step_count=30)


class ThinReplication(Replication):
    """The same with a subscriber that asks for every third key."""

    every_nth = 3


TestThinReplication = ThinReplication.TestCase
TestThinReplication.settings = settings(max_examples=examples(16), stateful_step_count=30)


def drain(subscription: Subscription) -> list[WatchResponse]:
    messages = []
    while (message := subscription.take()) is not None:
        messages.append(message)
    return messages


def synchronized(keys: int) -> tuple[EventLog, BlockReplica, Subscription]:
    """A log of some keys, and a mirror that has them."""
    log, mirror = EventLog("e"), BlockReplica()
    for number in range(keys):
        log.stored(LAYOUTS[0], TIER_DRAM, key(number))
    log.flush()
    subscription = log.subscribe("", 0, nothing)
    mirror.opened()
    for message in drain(subscription):
        mirror.apply(message)
    assert mirror.held == log.contents()
    return log, mirror, subscription


def test_after_a_gap_a_mirror_is_stale_and_stays_as_it_was() -> None:
    log, mirror, subscription = synchronized(2)
    before = {space: set(keys) for space, keys in mirror.held.items()}
    for number in (2, 3, 4):
        log.stored(LAYOUTS[0], TIER_DRAM, key(number))
        log.flush()
    _, second, third = drain(subscription)
    for message in (second, third, second):
        assert mirror.apply(message).added == {}
    assert mirror.stale
    assert mirror.held == before
    again = log.subscribe(mirror.request().epoch, mirror.request().sequence, nothing)
    mirror.opened()
    for message in drain(again):
        mirror.apply(message)
    assert mirror.held == log.contents()


def test_a_doubled_message_changes_nothing() -> None:
    log, mirror, subscription = synchronized(2)
    log.evicted(LAYOUTS[0], TIER_DRAM, key(0))
    log.flush()
    (message,) = drain(subscription)
    assert mirror.apply(message).removed == {BlockSpace(LAYOUTS[0], TIER_DRAM): {key(0)}}
    assert mirror.apply(message).removed == {}
    assert not mirror.stale


def test_a_snapshot_that_misses_a_piece_is_not_taken() -> None:
    log = EventLog("e")
    for number in range(120_000):
        log.stored(LAYOUTS[0], TIER_DRAM, key(number))
    log.flush()
    pieces = drain(log.subscribe("", 0, nothing))
    assert len(pieces) == 3
    for missing in range(3):
        mirror = BlockReplica()
        for piece in [*pieces[:missing], *pieces[missing + 1 :]]:
            mirror.apply(piece)
        mirror.apply(log.heartbeat())
        assert mirror.stale
        assert mirror.held == {}


def test_one_turn_of_the_loop_is_one_message_in_order() -> None:
    log = EventLog("e")
    subscription = log.subscribe("", 0, nothing)
    drain(subscription)
    for number in range(10):
        log.stored(LAYOUTS[0], TIER_DRAM, key(number))
    log.evicted(LAYOUTS[0], TIER_DRAM, key(3))
    log.stored(LAYOUTS[0], TIER_DRAM, key(3))
    log.flush()
    (message,) = drain(subscription)
    assert len(unpack(message.events.events[0].stored.keys)) == 10
    assert [e.WhichOneof("event") for e in message.events.events] == ["stored", "evicted", "stored"]
    assert message.events.first_sequence == 1
    assert log.sequence == 3


def test_a_subscriber_that_saw_it_all_resumes_without_a_message() -> None:
    log = EventLog("e")
    log.stored(LAYOUTS[0], TIER_DRAM, key(1))
    log.flush()
    assert drain(log.subscribe("e", 1, nothing)) == []


def test_missed_events_come_again_from_the_ring() -> None:
    log = EventLog("e")
    for number in range(5):
        log.stored(LAYOUTS[0], TIER_DRAM, key(number))
        log.flush()
    (message,) = drain(log.subscribe("e", 2, nothing))
    assert message.events.first_sequence == 3
    assert len(message.events.events) == 3


def test_the_ring_takes_the_memory_that_it_may() -> None:
    log = EventLog("e", ring_bytes=1 << 20)

    def record(changes: int) -> None:
        for number in range(changes):  # one key each: a block of an answer
            log.stored(LAYOUTS[number % 2], TIER_DRAM, key(number % 100))
            log.flush()

    record(10_000)
    before = rss_bytes(os.getpid())
    record(30_000)
    assert rss_bytes(os.getpid()) - before < 8 << 20
    (first, *_) = drain(log.subscribe("e", log.sequence - 6000, nothing))
    assert first.events.first_sequence == log.sequence - 5999


@pytest.mark.parametrize("held", [100, 20_000])
def test_the_ring_is_no_longer_than_a_snapshot(held: int) -> None:
    log = EventLog("e")
    log.stored(LAYOUTS[0], TIER_DRAM, *map(key, range(held)))
    for number in range(25_000):
        tell = (log.evicted, log.stored)[number % 2]
        tell(LAYOUTS[1], TIER_DRAM, key(number % 100 // 2))
    log.flush()
    longest = max(held, RING_KEYS)
    (first, *_) = drain(log.subscribe("e", log.sequence - longest, nothing))
    assert first.events.first_sequence == log.sequence - longest + 1
    (first, *_) = drain(log.subscribe("e", log.sequence - longest - 100, nothing))
    assert first.HasField("snapshot")


@pytest.mark.parametrize(("epoch", "sequence"), [("", 0), ("other", 1), ("e", 99), ("e", -1)])
def test_any_other_position_begins_with_a_snapshot(epoch: str, sequence: int) -> None:
    log = EventLog("e")
    log.stored(LAYOUTS[0], TIER_DRAM, key(1))
    log.flush()
    (message,) = drain(log.subscribe(epoch, sequence, nothing))
    assert message.snapshot.last
    assert message.snapshot.sequence == 1


@pytest.mark.parametrize(
    ("start", "singles", "others"), [("snapshot", 0, 60_000), ("ring", 6000, 0)]
)
def test_messages_stay_below_a_mebibyte(start: str, singles: int, others: int) -> None:
    log = EventLog("e")
    for number in range(singles):  # runs of a single key are the worst for events
        log.stored(LAYOUTS[number % 2], TIER_DRAM, key(number))
    for number in range(others):
        log.stored(LAYOUTS[0], TIER_DRAM, key(number))
    log.flush()
    mirror = BlockReplica()
    mirror.epoch = "e" if start == "ring" else ""
    messages = drain(log.subscribe(mirror.epoch, 0, nothing))
    assert {message.HasField("snapshot") for message in messages} == {start == "snapshot"}
    assert len(messages) > 1
    assert max(message.ByteSize() for message in messages) < 1 << 20
    for message in messages:
        mirror.apply(message)
    assert mirror.held == log.contents()


def test_a_slow_subscriber_is_cut_and_the_others_are_not() -> None:
    log = EventLog("e", queue_keys=4)
    woken = []
    slow, quick = (log.subscribe("", 0, lambda: woken.append(1)) for _ in range(2))
    drain(slow)
    for number in range(10):
        log.stored(LAYOUTS[0], TIER_DRAM, key(number))
        log.flush()
        drain(quick)
    assert log.subscribers == 1
    with pytest.raises(SlowSubscriberError):
        drain(slow)
    assert woken


def test_moving_a_block_between_tiers_leaves_it_in_one() -> None:
    mirror = BlockReplica()
    mirror.epoch = "e"
    stored = BlockRun(layout_id=LAYOUTS[0], tier=TIER_DRAM, keys=key(1) + key(2))
    moved = BlockRun(layout_id=LAYOUTS[0], tier=TIER_DISK, keys=key(1))
    events = Events(
        epoch="e",
        first_sequence=1,
        events=[BlockEvent(stored=stored), BlockEvent(tier_moved=moved)],
    )
    delta = mirror.apply(WatchResponse(events=events))
    assert mirror.held == {
        BlockSpace(LAYOUTS[0], TIER_DRAM): {key(2)},
        BlockSpace(LAYOUTS[0], TIER_DISK): {key(1)},
    }
    assert delta.added[BlockSpace(LAYOUTS[0], TIER_DRAM)] == {key(2)}


def test_clearing_a_mirror_tells_what_is_gone() -> None:
    log, mirror = EventLog("e"), BlockReplica()
    log.stored(LAYOUTS[0], TIER_DRAM, key(1))
    log.flush()
    for message in drain(log.subscribe("", 0, nothing)):
        mirror.apply(message)
    assert mirror.clear().removed == {BlockSpace(LAYOUTS[0], TIER_DRAM): {key(1)}}
    assert mirror.held == {}
    assert mirror.request().epoch == ""


def test_only_what_saves_time_is_urgent_and_once_until_it_is_told() -> None:
    told: list[bool] = []
    log = EventLog("e", on_pending=told.append)
    log.expedite(60.0)
    assert told == []  # nothing has changed
    log.stored(LAYOUTS[0], TIER_DRAM, key(1))
    log.stored(LAYOUTS[0], TIER_DRAM, key(2))
    log.expedite(0.001)
    assert told == [False]
    log.expedite(60.0)
    log.expedite(60.0)
    assert told == [False, True]
    log.flush()
    log.evicted(LAYOUTS[0], TIER_DRAM, key(1))
    log.expedite(60.0)
    assert told == [False, True, False, True]
