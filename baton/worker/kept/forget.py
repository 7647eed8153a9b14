"""Drop what etcd keeps of a model that was removed for good."""

from collections.abc import Sequence

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.internal.v1.cluster_pb2 import KeptModel


async def forget_kept(endpoints: Sequence[str], cluster: str, model: str) -> None:
    """End the lease of a kept model, and with it its card and tokenizer; none: nothing happens.

    Raises:
        EtcdError: etcd is unavailable.
        ValueError: the record cannot be read.
    """
    async with Etcd(tuple(endpoints)) as etcd:
        stored = await etcd.get(keys.kept(cluster) + model)
        if stored is not None:
            await etcd.revoke(keys.decode(KeptModel, stored).lease)
