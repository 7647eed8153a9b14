"""Publishes the contents of the tiers to the event stream."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from baton.internal.v1 import kvevents_pb2
from baton.kv.events.log import EventLog
from baton.kv.objects import ObjectId
from services.kvstore.memory.slot import Slot


class BlockEventPublisher:
    """Turns changes of objects into block events: each block is in the best tier that has it.

    Owned by the store, on its event loop; follows the object table and the disk tier.
    """

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.in_memory: Callable[[ObjectId], bool] = lambda _: False
        """Returns whether memory has an object."""
        self.on_disk: Callable[[ObjectId], bool] | None = None
        """Returns whether the disk has an object; None: there is no disk."""
        self.spilled = 0
        """Number of objects that left memory and stay on disk."""

    def stored(self, slots: Sequence[Slot]) -> None:
        """Publish slots that memory now has."""
        for (layout_id, group), on_disk, run in self._runs(slots):
            publish = self._log.moved if on_disk else self._log.stored
            publish(layout_id, kvevents_pb2.TIER_DRAM, *_blocks(run), group=group)

    def removed(self, slots: Sequence[Slot]) -> None:
        """Publish slots that memory no longer has."""
        for (layout_id, group), on_disk, run in self._runs(slots):
            objects = list(run)
            if on_disk:
                self.spilled += len(objects)
                self._log.moved(layout_id, kvevents_pb2.TIER_DISK, *_blocks(objects), group=group)
            else:
                self._log.evicted(layout_id, kvevents_pb2.TIER_DRAM, *_blocks(objects), group=group)

    def stored_on_disk(self, object_id: ObjectId) -> None:
        """Publish an object that the disk has from an earlier process."""
        if object_id.is_block and not self.in_memory(object_id):
            layout_id, key, group, *_ = object_id
            self._log.stored(layout_id, kvevents_pb2.TIER_DISK, key, group=group)

    def removed_from_disk(self, object_id: ObjectId) -> None:
        """Publish an object that the disk no longer has."""
        if object_id.is_block and not self.in_memory(object_id):
            layout_id, key, group, *_ = object_id
            self._log.evicted(layout_id, kvevents_pb2.TIER_DISK, key, group=group)

    def _runs(
        self, slots: Sequence[Slot]
    ) -> Iterator[tuple[tuple[bytes, int], bool, Iterator[ObjectId]]]:
        """Yield adjacent slots of one layout and group, with whether the disk has them."""
        on_disk = self.on_disk
        for of, run in groupby([slot.object_id for slot in slots], itemgetter(0, 2)):
            if on_disk is None:
                yield of, False, run
            else:
                for held, part in groupby(run, on_disk):
                    yield of, held, part


def _blocks(object_ids: Iterable[ObjectId]) -> list[bytes]:
    """Return the keys of the objects that represent their blocks in their group."""
    return [key for _, key, _, shard, part in object_ids if not (shard or part)]
