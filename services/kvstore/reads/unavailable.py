"""Objects that a local writer reported it will not write."""

from collections.abc import Iterable

from baton.kv.objects import ObjectId

MAX_UNAVAILABLE = 262_144
"""Most objects remembered; the oldest are dropped."""


class Unavailable:
    """Remembers WillNotCome for reads that arrive just after it. Owned by WaitTable; no clock.

    Args:
        seconds: how long each is remembered.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until: dict[ObjectId, float] = {}

    def add(self, object_ids: Iterable[ObjectId], now: float) -> None:
        """Remember objects, from now."""
        for object_id in object_ids:
            self._until.pop(object_id, None)
            self._until[object_id] = now + self._seconds
        while len(self._until) > MAX_UNAVAILABLE:
            del self._until[next(iter(self._until))]

    def discard(self, object_ids: Iterable[ObjectId]) -> None:
        """Forget objects: a writer has a slot for them."""
        for object_id in object_ids if self._until else ():
            self._until.pop(object_id, None)

    def is_known(self, object_id: ObjectId, now: float) -> bool:
        """Return whether an object is remembered as unavailable."""
        return self._until.get(object_id, now) > now

    def expire(self, now: float) -> None:
        """Drop expired entries."""
        for object_id, until in list(self._until.items()):
            if until > now:
                break
            del self._until[object_id]
