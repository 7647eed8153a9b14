"""Turns objects into blocks of the event stream: each block is in the best tier that has it."""

from collections.abc import Callable, Iterable
from itertools import groupby

from baton.kv.events import EventLog
from baton.kv.objects import ObjectId
from baton.v1 import kvevents_pb2


class Announcer:
    """See the module's text."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self.above: Callable[[ObjectId], bool] = lambda _: False
        """Whether memory has it."""
        self.below: Callable[[ObjectId], bool] = lambda _: False
        """Whether the disk has it."""
        self.moved_down = 0
        """Objects that left memory and stay below."""

    def stored(self, *object_ids: ObjectId) -> None:
        """Memory has them now."""
        for (layout_id, below), run in groupby(object_ids, self._kind):
            tell = self._log.moved if below else self._log.stored
            tell(layout_id, kvevents_pb2.TIER_DRAM, *_blocks(run))

    def gone(self, *object_ids: ObjectId) -> None:
        """Memory has them no longer."""
        for (layout_id, below), run in groupby(object_ids, self._kind):
            objects = list(run)
            if below:
                self.moved_down += len(objects)
                self._log.moved(layout_id, kvevents_pb2.TIER_DISK, *_blocks(objects))
            else:
                self._log.evicted(layout_id, kvevents_pb2.TIER_DRAM, *_blocks(objects))

    def stored_below(self, object_id: ObjectId) -> None:
        """The disk has it, and had it before this process began."""
        if object_id.is_block and not self.above(object_id):
            self._log.stored(object_id.layout_id, kvevents_pb2.TIER_DISK, object_id.key)

    def gone_below(self, object_id: ObjectId) -> None:
        """The disk has it no longer."""
        if object_id.is_block and not self.above(object_id):
            self._log.evicted(object_id.layout_id, kvevents_pb2.TIER_DISK, object_id.key)

    def _kind(self, object_id: ObjectId) -> tuple[bytes, bool]:
        return object_id.layout_id, self.below(object_id)


def _blocks(object_ids: Iterable[ObjectId]) -> list[bytes]:
    """Keys of those that stand for their block."""
    return [key for _, key, group, shard, part in object_ids if not (group or shard or part)]
