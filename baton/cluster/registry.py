"""Which clusters an etcd knows."""

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd


async def process_counts(etcd: Etcd) -> dict[str, int]:
    """Return how many processes are registered of each cluster that has any record, by the
    cluster's name.

    One request per cluster finds its name, whatever number of records it has, and one counts its
    processes.

    Raises:
        EtcdError: etcd does not answer.
    """
    found: dict[str, int] = {}
    start = keys.ROOT
    while (key := await etcd.first(start, keys.prefix_end(keys.ROOT))) is not None:
        name = keys.cluster_of(key)
        found[name] = await etcd.count(keys.instances(name))
        start = keys.prefix_end(keys.cluster(name))
    return found
