"""The clusters that an etcd holds records of."""

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd


async def process_counts(etcd: Etcd) -> dict[str, int]:
    """Return the number of registered processes per cluster, by cluster name.

    Clusters that have any record are included. Each takes one request to find its name, however
    many records it has, and one to count its processes.

    Raises:
        EtcdError: etcd does not respond.
    """
    found: dict[str, int] = {}
    start = keys.ROOT
    while (key := await etcd.first(start, keys.prefix_end(keys.ROOT))) is not None:
        name = keys.cluster_of(key)
        found[name] = await etcd.count(keys.instances(name))
        start = keys.prefix_end(keys.cluster(name))
    return found
