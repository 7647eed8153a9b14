"""The log of what a store or worker holds: numbers changes and keeps the recent ones. No I/O."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from baton.internal.v1 import kvevents_pb2 as pb
from baton.kv.events.messages import (
    EVICTED,
    MAX_RUN_KEYS,
    MOVED,
    STORED,
    in_messages,
    make_event,
    snapshot_messages,
    split,
    thin_out,
)
from baton.kv.events.replica import LayoutTier
from baton.kv.keys import pack


class SlowSubscriberError(Exception):
    """A subscriber read too slowly: its queue was cut, and it must watch anew."""


@dataclass(eq=False)
class Subscription:
    """One subscriber's queue of messages, bounded by keys: a full one is cut."""

    begin: Iterable[pb.WatchResponse]
    """Messages that it begins with; bounded by what is held, and not counted."""
    wake: Callable[[], None]
    every_nth: int = 1
    cut: bool = False
    keys: int = 0
    """In the queue."""
    queue: deque[tuple[pb.WatchResponse, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.queue = deque((message, 0) for message in self.begin)

    def take(self) -> pb.WatchResponse | None:
        """Return the next message; None where there is none yet.

        Raises:
            SlowSubscriberError: the subscriber was cut and has read what came before.
        """
        if self.queue:
            message, keys = self.queue.popleft()
            self.keys -= keys
            return message if self.every_nth <= 1 else thin_out(message, self.every_nth)
        if self.cut:
            raise SlowSubscriberError
        return None


class EventLog:
    """What an instance holds, and its changes in order, for subscribers that replicate it.

    Its owner records changes and calls `flush` soon after `on_pending`. A subscriber resumes where
    it left as long as the log remembers that; otherwise it begins with a snapshot. One thread.

    Args:
        epoch: new with every start of the process.
        ring_keys: how many keys of past events are kept for subscribers that resume.
        queue_keys: how many keys a subscriber may lag behind.
        on_pending: called with the first change after a flush.
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
        """Record that blocks became readable in a tier."""
        self._append(STORED, (layout_id, tier), keys)

    def evicted(self, layout_id: bytes, tier: pb.Tier.ValueType, *keys: bytes) -> None:
        """Record that blocks are gone from a tier."""
        self._append(EVICTED, (layout_id, tier), keys)

    def moved(self, layout_id: bytes, tier: pb.Tier.ValueType, *keys: bytes) -> None:
        """Record that blocks are in this tier now, and in no other."""
        self._append(MOVED, (layout_id, tier), keys)

    def flush(self) -> None:
        """Number the changes since the last flush and queue them for subscribers."""
        pending, self._pending = self._pending, []
        events = []
        for kind, layout_tier, keys in pending:
            if kind == EVICTED:
                self._remove(layout_tier, keys)
            else:
                self._held.setdefault(layout_tier, {}).update(dict.fromkeys(keys))
            if kind == MOVED:
                for other in [s for s in self._held if s[0] == layout_tier[0] and s != layout_tier]:
                    self._remove(other, keys)
            run = pb.BlockRun(layout_id=layout_tier[0], tier=layout_tier[1], keys=pack(keys))
            events.append((make_event(kind, run), len(keys)))
        if not events:
            return
        first = self.sequence + 1
        self.sequence += len(events)
        self._remember(events)
        for message, size in in_messages(self.epoch, first, events):
            for subscription in list(self._subscriptions):
                self._enqueue(subscription, message, size)

    def subscribe(
        self, epoch: str, sequence: int, wake: Callable[[], None], every_nth: int = 1
    ) -> Subscription:
        """Begin after (epoch, sequence) if the log remembers what came since, else with a snapshot.

        Args:
            epoch: the last one that the subscriber saw; empty for none.
            sequence: the last one that it saw in that epoch.
            wake: called when there is a message to take.
            every_nth: as in WatchRequest.
        """
        oldest = self.sequence - len(self._ring)
        if epoch == self.epoch and oldest <= sequence <= self.sequence:
            missed = in_messages(self.epoch, sequence + 1, list(self._ring)[sequence - oldest :])
            subscription = Subscription((message for message, _ in missed), wake, every_nth)
        else:
            subscription = Subscription(
                snapshot_messages(self.epoch, self.sequence, self._held), wake, every_nth
            )
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscriber; no error if it was cut before."""
        self._subscriptions.discard(subscription)

    @property
    def subscribers(self) -> int:
        """How many there are."""
        return len(self._subscriptions)

    def heartbeat(self) -> pb.WatchResponse:
        """Return a message without events: it shows a subscriber whether it missed the last one."""
        return pb.WatchResponse(
            events=pb.Events(epoch=self.epoch, first_sequence=self.sequence + 1)
        )

    def contents(self) -> dict[LayoutTier, set[bytes]]:
        """Return what is held as of the last flush."""
        return {layout_tier: set(keys) for layout_tier, keys in self._held.items()}

    def _remove(self, layout_tier: LayoutTier, keys: Iterable[bytes]) -> None:
        held = self._held.get(layout_tier)
        if held is None:
            return
        for key in keys:
            held.pop(key, None)
        if not held:
            del self._held[layout_tier]

    def _append(self, kind: str, layout_tier: LayoutTier, keys: Sequence[bytes]) -> None:
        pending = self._pending
        if not pending and keys:
            self.on_pending()
        if pending:
            last_kind, last_layout_tier, run = pending[-1]
            if last_kind == kind and last_layout_tier == layout_tier:
                room = MAX_RUN_KEYS - len(run)
                run.extend(keys[:room])
                keys = keys[room:]
        pending.extend((kind, layout_tier, list(part)) for part in split(keys, MAX_RUN_KEYS))

    def _remember(self, events: list[tuple[pb.BlockEvent, int]]) -> None:
        self._ring.extend(events)
        self._ring_size += sum(size for _, size in events)
        while self._ring and self._ring_size > self._ring_keys:
            self._ring_size -= self._ring.popleft()[1]

    def _enqueue(self, subscription: Subscription, message: pb.WatchResponse, size: int) -> None:
        if subscription.keys >= self._queue_keys:
            subscription.cut = True
            self._subscriptions.discard(subscription)
        else:
            subscription.queue.append((message, size))
            subscription.keys += size
        subscription.wake()
