"""What changes to records that belong to the whole cluster have in common."""

import time
from collections.abc import Callable, Iterable

from baton.cluster.etcd.client import Etcd
from baton.tenancy.records.audit import OPERATOR, Actor
from baton.tenancy.records.store import R, RecordChange, RecordStore


class ClusterAdministration:
    """Reads and changes records of the cluster. Changes are audited under a pseudo-tenant.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        clock: returns seconds since the Unix epoch.
        actor: the author of the changes.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        clock: Callable[[], float] = time.time,
        actor: Actor = OPERATOR,
    ) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._store = RecordStore(etcd, cluster, clock)
        self._actor = actor

    async def _replaced(
        self, wanted: R, noun: str, fields: Iterable[str], *, removed: bool
    ) -> RecordChange[R]:
        """Return the change that creates a record, or replaces fields of the one that is there.

        Args:
            wanted: the record.
            noun: the first part of the event's name.
            fields: names of those that are replaced.
            removed: whether the record says that there is none any more.
        """
        kind = type(wanted)
        if not await self._store.exists(kind, wanted.id):
            return RecordChange(f"{noun}.created", wanted)
        event = f"{noun}.removed" if removed else f"{noun}.updated"
        changes = {name: getattr(wanted, name) for name in fields}
        return await self._store.changed(kind, wanted.id, event, lambda _: changes)
