"""What changes to records that belong to the whole cluster have in common."""

import time
from collections.abc import Callable

from baton.cluster.etcd.client import Etcd
from baton.tenancy.records.audit import OPERATOR, Actor
from baton.tenancy.records.store import RecordStore


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
