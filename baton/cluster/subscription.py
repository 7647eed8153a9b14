"""Tells one reader what changed in the view, however slow it reads."""

import asyncio
from collections.abc import Mapping

from baton.cluster.membership import Change
from baton.internal.v1.cluster_pb2 import Instance


class Subscription:
    """What one reader was told, and of whom it may need to be told more.

    It holds one entry per instance, never a backlog: several changes of an instance that were not
    read yet become one, and an instance that came and went unread is never mentioned.
    """

    def __init__(self, alive: Mapping[str, Instance], models: bool) -> None:
        self._alive = alive
        self._told: dict[str, Instance] = {}
        self._dirty: dict[str, None] = dict.fromkeys(alive)
        self._models = models
        self._news = asyncio.Event()
        self._news.set()

    def touch(self, change: Change) -> None:
        """Something changed; `read` will compare."""
        if change.kind == "models":
            self._models = True
        else:
            self._dirty[change.instance.id] = None
        self._news.set()

    async def read(self) -> list[Change]:
        """Wait for news; the changes from what was told to what is now."""
        await self._news.wait()
        self._news.clear()
        changes = []
        if self._models:
            changes.append(Change("models", Instance()))
        for instance_id in self._dirty:
            changes += self._compare(instance_id)
        self._dirty, self._models = {}, False
        return changes

    def _compare(self, instance_id: str) -> list[Change]:
        told, now = self._told.get(instance_id), self._alive.get(instance_id)
        if now is None:
            self._told.pop(instance_id, None)
            return [] if told is None else [Change("down", told)]
        self._told[instance_id] = now
        if told is None:
            return [Change("up", now)]
        if told.incarnation != now.incarnation:
            return [Change("down", told), Change("up", now)]
        return [Change("update", now)] if told != now else []
