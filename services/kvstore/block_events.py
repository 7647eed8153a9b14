"""Turns objects into blocks of the event stream: each block is in the best tier that has it."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from operator import itemgetter

from baton.internal.v1 import kvevents_pb2
from baton.kv.events.log import EventLog
from baton.kv.objects import ObjectId


class BlockEventPublisher:
    """See the module's text."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.in_memory: Callable[[ObjectId], bool] = lambda _: False
        """Whether memory has it."""
        self.on_disk: Callable[[ObjectId], bool] | None = None
        """Whether the disk has it; None where there is no disk."""
        self.spilled = 0
        """Objects that left memory and stay below."""

    def stored(self, *object_ids: ObjectId) -> None:
        """Memory has them now."""
        for (layout_id, below), run in self._runs(object_ids):
            tell = self._log.moved if below else self._log.stored
            tell(layout_id, kvevents_pb2.TIER_DRAM, *_blocks(run))

    def gone(self, *object_ids: ObjectId) -> None:
        """Memory has them no longer."""
        for (layout_id, below), run in self._runs(object_ids):
            objects = list(run)
            if below:
                self.spilled += len(objects)
                self._log.moved(layout_id, kvevents_pb2.TIER_DISK, *_blocks(objects))
            else:
                self._log.evicted(layout_id, kvevents_pb2.TIER_DRAM, *_blocks(objects))

    def stored_on_disk(self, object_id: ObjectId) -> None:
        """The disk has it, and had it before this process began."""
        if object_id.is_block and not self.in_memory(object_id):
            self._log.stored(object_id.layout_id, kvevents_pb2.TIER_DISK, object_id.key)

    def gone_from_disk(self, object_id: ObjectId) -> None:
        """The disk has it no longer."""
        if object_id.is_block and not self.in_memory(object_id):
            self._log.evicted(object_id.layout_id, kvevents_pb2.TIER_DISK, object_id.key)

    def _runs(
        self, object_ids: Iterable[ObjectId]
    ) -> Iterator[tuple[tuple[bytes, bool], Iterator[ObjectId]]]:
        """Neighbours of one layout, with whether the disk has them."""
        below = self.on_disk
        for layout_id, run in groupby(object_ids, itemgetter(0)):
            if below is None:
                yield (layout_id, False), run
            else:
                for held, part in groupby(run, below):
                    yield (layout_id, held), part


def _blocks(object_ids: Iterable[ObjectId]) -> list[bytes]:
    """Keys of those that stand for their block."""
    return [key for _, key, group, shard, part in object_ids if not (group or shard or part)]
