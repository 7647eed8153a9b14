"""Replica of the blocks that another instance holds, kept by applying its event stream. No I/O."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from baton.internal.v1 import kvevents_pb2 as pb
from baton.kv.keys import unpack


class BlockSpace(NamedTuple):
    """What keys of blocks are told apart by: the same key may be in several spaces."""

    layout_id: bytes
    tier: pb.Tier.ValueType
    group: int = 0


@dataclass(slots=True)
class BlockDelta:
    """Net change by one message: no key is both added and removed, and no set is empty."""

    added: dict[BlockSpace, set[bytes]] = field(default_factory=dict)
    removed: dict[BlockSpace, set[bytes]] = field(default_factory=dict)

    def add(self, space: BlockSpace, keys: set[bytes]) -> None:
        """Add keys, which the delta owns from now on."""
        _move(space, keys, self.added, self.removed)

    def remove(self, space: BlockSpace, keys: set[bytes]) -> None:
        """Remove keys, which the delta owns from now on."""
        _move(space, keys, self.removed, self.added)


class BlockReplica:
    """One instance's contents, maintained by applying the messages of its event stream in order.

    Usage: watch `request()`, call `opened()`, then `apply` each message. When `stale` becomes true,
    a message was missed: no more are applied until a new watch is opened.

    Args:
        every_nth: replicate only about one key in this many, as in WatchRequest.
    """

    def __init__(self, every_nth: int = 1) -> None:
        self._every_nth = every_nth
        self.epoch = ""
        self.sequence = 0
        self.stale = False
        self.held: dict[BlockSpace, set[bytes]] = {}
        self._snapshot: _Pieces | None = None

    def request(self) -> pb.WatchRequest:
        """Return the request of the next watch, which begins after the last applied event."""
        return pb.WatchRequest(epoch=self.epoch, sequence=self.sequence, every_nth=self._every_nth)

    def opened(self) -> None:
        """Begin a watch on `request`; drop an incomplete snapshot of an earlier one."""
        self.stale = False
        self._snapshot = None

    def clear(self) -> BlockDelta:
        """Drop everything when the instance is gone; return the change."""
        self.opened()
        self.epoch, self.sequence = "", 0
        return self._replace(())

    def apply(self, message: pb.WatchResponse) -> BlockDelta:
        """Apply one message. A duplicate changes nothing; one after a gap sets `stale`."""
        if self.stale:
            return BlockDelta()
        if message.HasField("snapshot"):
            return self._apply_piece(message.snapshot)
        return self._apply_events(message.events)

    def _apply_piece(self, piece: pb.Snapshot) -> BlockDelta:
        position = (piece.epoch, piece.sequence)
        if self._snapshot is None:
            if piece.epoch == self.epoch and piece.sequence <= self.sequence:
                return BlockDelta()  # duplicate, or older than the known state
            if piece.piece != 0:
                self.stale = True
                return BlockDelta()
            self._snapshot = _Pieces(position)
        snapshot = self._snapshot
        if position != snapshot.position or piece.piece > snapshot.count:
            self.stale = True
            return BlockDelta()
        if piece.piece < snapshot.count:
            return BlockDelta()  # duplicate
        snapshot.count += 1
        snapshot.runs.extend(piece.runs)
        if not piece.last:
            return BlockDelta()
        self._snapshot = None
        self.epoch, self.sequence = position
        return self._replace(snapshot.runs)

    def _replace(self, runs: Sequence[pb.BlockRun]) -> BlockDelta:
        now: dict[BlockSpace, set[bytes]] = {}
        for run in filter(lambda run: run.keys, runs):
            now.setdefault(space_of(run), set()).update(unpack(run.keys))
        delta = BlockDelta()
        for space in now.keys() | self.held.keys():
            before, after = self.held.get(space, set()), now.get(space, set())
            delta.add(space, after - before)
            delta.remove(space, before - after)
        self.held = now
        return delta

    def _apply_events(self, events: pb.Events) -> BlockDelta:
        known = self.sequence + 1 - events.first_sequence
        if self._snapshot is not None or events.epoch != self.epoch or known < 0:
            self.stale = True
            return BlockDelta()
        delta = BlockDelta()
        for event in events.events[known:]:
            self._apply_event(event, delta)
            self.sequence += 1
        return delta

    def _apply_event(self, event: pb.BlockEvent, delta: BlockDelta) -> None:
        if event.HasField("stored"):
            self._store(event.stored, delta)
        elif event.HasField("evicted"):
            run = event.evicted
            self._drop(space_of(run), unpack(run.keys), delta)
        elif event.HasField("tier_moved"):
            run = event.tier_moved
            for space in other_tiers(space_of(run), self.held):
                self._drop(space, unpack(run.keys), delta)
            self._store(run, delta)

    def _store(self, run: pb.BlockRun, delta: BlockDelta) -> None:
        if not run.keys:
            return
        space = space_of(run)
        held = self.held.setdefault(space, set())
        new = set(unpack(run.keys))
        new -= held
        held |= new
        delta.add(space, new)

    def _drop(self, space: BlockSpace, keys: Iterable[bytes], delta: BlockDelta) -> None:
        held = self.held.get(space, set())
        gone = held.intersection(keys)
        held -= gone
        delta.remove(space, gone)
        if not held:
            self.held.pop(space, None)


def space_of(run: pb.BlockRun) -> BlockSpace:
    """Return the space of a run's blocks."""
    return BlockSpace(run.layout_id, run.tier, run.group)


def other_tiers(space: BlockSpace, among: Iterable[BlockSpace]) -> list[BlockSpace]:
    """Return the spaces that differ in the tier alone."""
    layout_id, tier, group = space
    return [s for s in among if s[0] == layout_id and s[1] != tier and s[2] == group]


@dataclass(slots=True)
class _Pieces:
    """A snapshot of which `count` pieces have arrived."""

    position: tuple[str, int]
    count: int = 0
    runs: list[pb.BlockRun] = field(default_factory=list)


def _move(
    space: BlockSpace,
    keys: set[bytes],
    to: dict[BlockSpace, set[bytes]],
    other: dict[BlockSpace, set[bytes]],
) -> None:
    """Add keys to one side, except those that cancel keys on the other."""
    undone = other.get(space)
    if undone:
        both = keys & undone
        keys -= both
        undone -= both
        if not undone:
            del other[space]
    if keys:
        known = to.setdefault(space, keys)
        if known is not keys:
            known |= keys
