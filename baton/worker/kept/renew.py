"""Renew what etcd keeps of a model that has no workers to do so."""

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.internal.v1.cluster_pb2 import KeptModel


async def renew_kept(etcd: Etcd, cluster: str, model: str) -> None:
    """Renew the lease of a kept model; none is kept: nothing happens.

    Raises:
        EtcdError: etcd is unavailable.
        ValueError: the record cannot be read.
    """
    stored = await etcd.get(keys.kept(cluster) + model)
    if stored is not None:
        await etcd.keep_alive(keys.decode(KeptModel, stored).lease)
