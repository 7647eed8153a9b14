"""What a store or worker holds, as an ordered stream: the writing side.

`EventLog` numbers changes and keeps the recent ones; `BlockReplica` (re-exported) applies them. A
stream resumes where it broke as long as the log remembers, else it begins with a snapshot. Both
are plain objects without I/O.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from baton.internal.v1 import kvevents_pb2 as pb
from baton.kv.events.replica import BlockDelta, BlockReplica, LayoutTier
from baton.kv.keys import pack, unpack

__all__ = [
    "BlockDelta",
    "BlockReplica",
    "EventLog",
    "LayoutTier",
    "SlowSubscriberError",
    "Subscription",
]

STORED = "stored"
EVICTED = "evicted"
MOVED = "moved"

MAX_RUN_KEYS = 4096
"""Keys in one run: 64 KiB."""
MAX_MESSAGE_KEYS = 49_152
"""Keys in one message: 768 KiB, so that messages stay below 1 MiB."""
MAX_MESSAGE_EVENTS = 4096


class SlowSubscriberError(Exception):
    """A subscriber's queue is full: it was cut off and must watch anew."""


@dataclass(eq=False)
class Subscription:
    """One subscriber's queue of messages, bounded: a full one is cut."""

    begin: Iterable[pb.WatchResponse]
    """What it begins with; bounded by what is held, and not counted."""
    wake: Callable[[], None]
    every_nth: int = 1
    cut: bool = False
    keys: int = 0
    """In the queue."""
    queue: deque[tuple[pb.WatchResponse, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.queue = deque((message, 0) for message in self.begin)

    def take(self) -> pb.WatchResponse | None:
        """The next message; None where there is none yet.

        Raises:
            SlowSubscriberError: the subscriber was cut and has read what came before.
        """
        if self.queue:
            message, keys = self.queue.popleft()
            self.keys -= keys
            return message if self.every_nth <= 1 else _thin(message, self.every_nth)
        if self.cut:
            raise SlowSubscriberError
        return None


class EventLog:
    """The writing side: tell it what happens, then `flush` once per turn of the event loop.

    Args:
        epoch: new with every start of the process.
        ring_keys: how many keys of past events are kept for subscribers that resume.
        queue_keys: how many keys a subscriber may lag behind.
        on_pending: called when there is something to flush for the first time since a flush.
    """

    def __init__(
        self,
        epoch: str,
        *,
        ring_keys: int = 262_144,
        queue_keys: int = 262_144,
        on_pending: Callable[[], None] = lambda: None,
    ) -> None:
        self.epoch = epoch
        self.sequence = 0
        self.on_pending = on_pending
        self._ring_keys = ring_keys
        self._queue_keys = queue_keys
        self._held: dict[LayoutTier, dict[bytes, None]] = {}
        self._pending: list[tuple[str, LayoutTier, list[bytes]]] = []
        self._ring: deque[tuple[pb.BlockEvent, int]] = deque()
        self._ring_size = 0
        self._subscriptions: set[Subscription] = set()

    def stored(self, layout_id: bytes, tier: pb.Tier.ValueType, *keys: bytes) -> None:
        """Blocks became readable in a tier."""
        self._append(STORED, (layout_id, tier), keys)

    def evicted(self, layout_id: bytes, tier: pb.Tier.ValueType, *keys: bytes) -> None:
        """Blocks are gone from a tier."""
        self._append(EVICTED, (layout_id, tier), keys)

    def moved(self, layout_id: bytes, tier: pb.Tier.ValueType, *keys: bytes) -> None:
        """Blocks are in this tier now, and in no other."""
        self._append(MOVED, (layout_id, tier), keys)

    def flush(self) -> None:
        """Number what happened since the last flush and hand it to subscribers."""
        pending, self._pending = self._pending, []
        events = []
        for kind, space, keys in pending:
            if kind == EVICTED:
                self._remove(space, keys)
            else:
                self._held.setdefault(space, {}).update(dict.fromkeys(keys))
            if kind == MOVED:
                for other in [s for s in self._held if s[0] == space[0] and s != space]:
                    self._remove(other, keys)
            run = pb.BlockRun(layout_id=space[0], tier=space[1], keys=pack(keys))
            events.append((_event(kind, run), len(keys)))
        if not events:
            return
        first = self.sequence + 1
        self.sequence += len(events)
        self._remember(events)
        for message, size in _messages(self.epoch, first, events):
            for subscription in list(self._subscriptions):
                self._give(subscription, message, size)

    def subscribe(
        self, epoch: str, sequence: int, wake: Callable[[], None], every_nth: int = 1
    ) -> Subscription:
        """Begin after (epoch, sequence) if the log remembers what came since, else anew.

        Args:
            epoch: the last one that the subscriber saw; empty for none.
            sequence: the last one that it saw in that epoch.
            wake: called when there is a message to take.
            every_nth: as in WatchRequest.
        """
        oldest = self.sequence - len(self._ring)
        if epoch == self.epoch and oldest <= sequence <= self.sequence:
            missed = _messages(self.epoch, sequence + 1, list(self._ring)[sequence - oldest :])
            subscription = Subscription((message for message, _ in missed), wake, every_nth)
        else:
            subscription = Subscription(self._snapshot(), wake, every_nth)
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscriber; no error if it was cut before."""
        self._subscriptions.discard(subscription)

    @property
    def subscribers(self) -> int:
        return len(self._subscriptions)

    def heartbeat(self) -> pb.WatchResponse:
        """A message without events: tells a subscriber that lost the last one that it did."""
        return pb.WatchResponse(
            events=pb.Events(epoch=self.epoch, first_sequence=self.sequence + 1)
        )

    def contents(self) -> dict[LayoutTier, set[bytes]]:
        """What is held as of the last flush."""
        return {space: set(keys) for space, keys in self._held.items()}

    def _remove(self, space: LayoutTier, keys: Iterable[bytes]) -> None:
        held = self._held.get(space)
        if held is None:
            return
        for key in keys:
            held.pop(key, None)
        if not held:
            del self._held[space]

    def _append(self, kind: str, space: LayoutTier, keys: Sequence[bytes]) -> None:
        pending = self._pending
        if not pending and keys:
            self.on_pending()
        if pending:
            last_kind, last_space, run = pending[-1]
            if last_kind == kind and last_space == space:
                room = MAX_RUN_KEYS - len(run)
                run.extend(keys[:room])
                keys = keys[room:]
        pending.extend((kind, space, list(part)) for part in _split(keys, MAX_RUN_KEYS))

    def _remember(self, events: list[tuple[pb.BlockEvent, int]]) -> None:
        self._ring.extend(events)
        self._ring_size += sum(size for _, size in events)
        while self._ring and self._ring_size > self._ring_keys:
            self._ring_size -= self._ring.popleft()[1]

    def _give(self, subscription: Subscription, message: pb.WatchResponse, size: int) -> None:
        if subscription.keys >= self._queue_keys:
            subscription.cut = True
            self._subscriptions.discard(subscription)
        else:
            subscription.queue.append((message, size))
            subscription.keys += size
        subscription.wake()

    def _snapshot(self) -> Iterator[pb.WatchResponse]:
        runs = [
            pb.BlockRun(layout_id=layout_id, tier=tier, keys=pack(part))
            for (layout_id, tier), keys in self._held.items()
            for part in _split(list(keys), MAX_RUN_KEYS)
        ]
        pieces = list(_split(runs, MAX_MESSAGE_KEYS // MAX_RUN_KEYS)) or [[]]
        for number, piece in enumerate(pieces):
            yield pb.WatchResponse(
                snapshot=pb.Snapshot(
                    epoch=self.epoch,
                    sequence=self.sequence,
                    runs=piece,
                    last=number == len(pieces) - 1,
                    piece=number,
                )
            )


def _thin(message: pb.WatchResponse, every_nth: int) -> pb.WatchResponse:
    """A copy with about one key in so many. Events stay, emptied: their count is the sequence."""
    thin = pb.WatchResponse()
    thin.CopyFrom(message)  # others get the same message
    changed = (getattr(event, event.WhichOneof("event") or "") for event in thin.events.events)
    for run in (*thin.snapshot.runs, *changed):
        keys = unpack(run.keys)
        run.keys = pack([k for k in keys if not int.from_bytes(k[:8], "big") % every_nth])
    return thin


def _event(kind: str, run: pb.BlockRun) -> pb.BlockEvent:
    if kind == STORED:
        return pb.BlockEvent(stored=run)
    return pb.BlockEvent(evicted=run) if kind == EVICTED else pb.BlockEvent(tier_moved=run)


T = TypeVar("T")


def _split(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for at in range(0, len(items), size):
        yield items[at : at + size]


def _messages(
    epoch: str, first: int, events: Sequence[tuple[pb.BlockEvent, int]]
) -> Iterator[tuple[pb.WatchResponse, int]]:
    """Events in messages below 1 MiB, with how many keys are in each."""
    at = 0
    while at < len(events):
        end, keys = at, 0
        while end < len(events) and end - at < MAX_MESSAGE_EVENTS:
            if end > at and keys + events[end][1] > MAX_MESSAGE_KEYS:
                break
            keys += events[end][1]
            end += 1
        batch = [event for event, _ in events[at:end]]
        message = pb.Events(epoch=epoch, first_sequence=first + at, events=batch)
        yield pb.WatchResponse(events=message), keys
        at = end
