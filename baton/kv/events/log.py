"""Log of the blocks that a store or worker holds: numbers changes and keeps recent ones. No I/O."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

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
from baton.kv.events.replica import BlockSpace, other_tiers
from baton.kv.keys import KEY_BYTES, pack

CHANGE_BYTES = 128
"""Bytes that Python spends on a change, besides its keys. A protobuf message takes 1,000."""
RING_KEYS = 8192
"""Minimum number of keys in retained events, however few are held: a minute of a busy worker."""
URGENT_SECONDS = 0.02
"""Saving in time to first token, in seconds, that makes changes urgent for placements."""


_Change = tuple[str, BlockSpace, bytes]
"""A change: its kind, where its blocks are, and their keys."""


class SlowSubscriberError(Exception):
    """A subscriber read too slowly: its queue was cut, and it must start a new watch."""


@dataclass(eq=False)
class Subscription:
    """One subscriber's queue of messages, bounded by keys: a full one is cut."""

    begin: Iterable[pb.WatchResponse]
    """Messages sent before the queue; bounded by the blocks held, and not counted."""
    wake: Callable[[], None]
    every_nth: int = 1
    cut: bool = False
    keys: int = 0
    """Number of keys in the queue."""
    queue: deque[tuple[pb.WatchResponse, int]] = field(init=False)

    def __post_init__(self) -> None:
        self.queue = deque((message, 0) for message in self.begin)

    def take(self) -> pb.WatchResponse | None:
        """Return the next message; None if there is none yet.

        Raises:
            SlowSubscriberError: the subscriber was cut and has read all earlier messages.
        """
        if self.queue:
            message, keys = self.queue.popleft()
            self.keys -= keys
            return message if self.every_nth <= 1 else thin_out(message, self.every_nth)
        if self.cut:
            raise SlowSubscriberError
        return None


class EventLog:
    """Blocks that an instance holds, and their changes in order, for subscribers that replicate
    them.

    The owner records changes and calls `flush` some time after `on_pending`, soon after an urgent
    one. A subscriber resumes where it left off if the log still has that position; otherwise it
    begins with a snapshot. For one thread.

    Args:
        epoch: new with every start of the process.
        ring_bytes: bytes of past events that are kept for subscribers that resume; events with more
            keys than are held, and than `RING_KEYS`, are dropped too.
        queue_keys: how many keys a subscriber may lag behind.
        on_pending: called with False after the first change since a flush, and with True once an
            urgent change is pending.
    """

    def __init__(
        self,
        epoch: str,
        *,
        ring_bytes: int = 16 * 1024 * 1024,
        queue_keys: int = 262_144,
        on_pending: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self.epoch = epoch
        self.sequence = 0
        self.on_pending = on_pending
        self._ring_bytes = ring_bytes
        self._queue_keys = queue_keys
        self._held: dict[BlockSpace, dict[bytes, None]] = {}
        self._pending: list[tuple[str, BlockSpace, list[bytes]]] = []
        self._urgent = False
        """Whether an urgent change is pending."""
        self._ring: deque[_Change] = deque()
        self._ring_size = 0
        """Bytes of the ring."""
        self._ring_keys = 0
        self._subscriptions: set[Subscription] = set()

    def stored(
        self, layout_id: bytes, tier: pb.Tier.ValueType, *keys: bytes, group: int = 0
    ) -> None:
        """Record that blocks of a group became readable in a tier."""
        self._append(STORED, BlockSpace(layout_id, tier, group), keys)

    def evicted(
        self, layout_id: bytes, tier: pb.Tier.ValueType, *keys: bytes, group: int = 0
    ) -> None:
        """Record that blocks of a group were evicted from a tier."""
        self._append(EVICTED, BlockSpace(layout_id, tier, group), keys)

    def moved(
        self, layout_id: bytes, tier: pb.Tier.ValueType, *keys: bytes, group: int = 0
    ) -> None:
        """Record that blocks of a group are now in this tier only."""
        self._append(MOVED, BlockSpace(layout_id, tier, group), keys)

    def expedite(self, saved_seconds: float) -> None:
        """Make the changes since the last flush urgent if placements gain enough from them.

        A computed prompt does; blocks that streams add to their own KV one at a time do not.

        Args:
            saved_seconds: time that a request that uses them may save; 0: unknown.
        """
        if saved_seconds >= URGENT_SECONDS and self._pending and not self._urgent:
            self._urgent = True
            self.on_pending(True)

    def flush(self) -> None:
        """Number the changes since the last flush and queue them for subscribers."""
        pending, self._pending = self._pending, []
        self._urgent = False
        events = []
        for kind, space, keys in pending:
            if kind == EVICTED:
                self._remove(space, keys)
            else:
                self._held.setdefault(space, {}).update(dict.fromkeys(keys))
            if kind == MOVED:
                for other in other_tiers(space, self._held):
                    self._remove(other, keys)
            packed = pack(keys)
            events.append((make_event(kind, space, packed), len(keys)))
            self._remember((kind, space, packed))
        if not events:
            return
        self._forget()
        first = self.sequence + 1
        self.sequence += len(events)
        for message, size in in_messages(self.epoch, first, events):
            for subscription in list(self._subscriptions):
                self._enqueue(subscription, message, size)

    def subscribe(
        self, epoch: str, sequence: int, wake: Callable[[], None], every_nth: int = 1
    ) -> Subscription:
        """Subscribe after (epoch, sequence) if the log still has all later events, else with a
        snapshot.

        Args:
            epoch: last epoch that the subscriber saw; empty: none.
            sequence: last sequence number that it saw in that epoch.
            wake: called when a message is available.
            every_nth: as in WatchRequest.
        """
        oldest = self.sequence - len(self._ring)
        if epoch == self.epoch and oldest <= sequence <= self.sequence:
            changes = islice(self._ring, sequence - oldest, None)
            events = [(make_event(*change), len(change[2]) // KEY_BYTES) for change in changes]
            missed = in_messages(self.epoch, sequence + 1, events)
            subscription = Subscription((message for message, _ in missed), wake, every_nth)
        else:
            subscription = Subscription(
                snapshot_messages(self.epoch, self.sequence, self._held), wake, every_nth
            )
        self._subscriptions.add(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscriber; not an error if it was already cut."""
        self._subscriptions.discard(subscription)

    @property
    def subscribers(self) -> int:
        """Number of subscribers."""
        return len(self._subscriptions)

    def heartbeat(self) -> pb.WatchResponse:
        """Return a message without events, by which a subscriber detects a missed one."""
        return pb.WatchResponse(
            events=pb.Events(epoch=self.epoch, first_sequence=self.sequence + 1)
        )

    def contents(self) -> dict[BlockSpace, set[bytes]]:
        """Return the blocks held as of the last flush."""
        return {space: set(keys) for space, keys in self._held.items()}

    def _remove(self, space: BlockSpace, keys: Iterable[bytes]) -> None:
        held = self._held.get(space)
        if held is None:
            return
        for key in keys:
            held.pop(key, None)
        if not held:
            del self._held[space]

    def _append(self, kind: str, space: BlockSpace, keys: Sequence[bytes]) -> None:
        pending = self._pending
        if not pending and keys:
            self.on_pending(False)
        if pending:
            last_kind, last_space, run = pending[-1]
            if last_kind == kind and last_space == space:
                room = MAX_RUN_KEYS - len(run)
                run.extend(keys[:room])
                keys = keys[room:]
        pending.extend((kind, space, list(part)) for part in split(keys, MAX_RUN_KEYS))

    def _remember(self, change: _Change) -> None:
        self._ring.append(change)
        self._ring_size += CHANGE_BYTES + len(change[2])
        self._ring_keys += len(change[2]) // KEY_BYTES

    def _forget(self) -> None:
        """Drop the oldest changes: those beyond the limits, and those longer than a snapshot."""
        most_keys = max(RING_KEYS, sum(map(len, self._held.values())))
        while self._ring_size > self._ring_bytes or self._ring_keys > most_keys:
            size = len(self._ring.popleft()[2])
            self._ring_size -= CHANGE_BYTES + size
            self._ring_keys -= size // KEY_BYTES

    def _enqueue(self, subscription: Subscription, message: pb.WatchResponse, size: int) -> None:
        if subscription.keys >= self._queue_keys:
            subscription.cut = True
            self._subscriptions.discard(subscription)
        else:
            subscription.queue.append((message, size))
            subscription.keys += size
        subscription.wake()
