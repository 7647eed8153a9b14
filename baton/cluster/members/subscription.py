"""Delivers changes of the view to one reader at the reader's pace."""

import asyncio
from collections.abc import Mapping

from baton.cluster.members.membership import MembershipChange
from baton.internal.v1.cluster_pb2 import Instance


class ChangeSubscription:
    """Tracks what was delivered to one reader, and which instances changed since.

    It holds one entry per instance, never a backlog: several unread changes of an instance become
    one, and an instance that appeared and left unread is never delivered.

    Args:
        alive: the view, live; its instances are delivered first, each as `up`.
        models: whether `models` is delivered first, too.
    """

    def __init__(self, alive: Mapping[str, Instance], models: bool) -> None:
        self._alive = alive
        self._delivered: dict[str, Instance] = {}
        self._changed: dict[str, None] = dict.fromkeys(alive)
        self._models = models
        self._wakeup = asyncio.Event()
        self._wakeup.set()

    def notify(self, change: MembershipChange) -> None:
        """Have `read` compare the instance or models that this change is about."""
        if change.kind == "models":
            self._models = True
        else:
            self._changed[change.instance.id] = None
        self._wakeup.set()

    async def read(self) -> list[MembershipChange]:
        """Wait for a change; return the difference between what was delivered and the current
        view."""
        await self._wakeup.wait()
        self._wakeup.clear()
        changes = []
        if self._models:
            changes.append(MembershipChange("models", Instance()))
        for instance_id in self._changed:
            changes += self._compare(instance_id)
        self._changed, self._models = {}, False
        return changes

    def _compare(self, instance_id: str) -> list[MembershipChange]:
        before, now = self._delivered.get(instance_id), self._alive.get(instance_id)
        if now is None:
            self._delivered.pop(instance_id, None)
            return [] if before is None else [MembershipChange("down", before)]
        self._delivered[instance_id] = now
        if before is None:
            return [MembershipChange("up", now)]
        if before.incarnation != now.incarnation:
            return [MembershipChange("down", before), MembershipChange("up", now)]
        return [MembershipChange("update", now)] if before != now else []
