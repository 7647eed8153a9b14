"""The names that requests may use for models, besides aliases."""

from collections.abc import Collection

import msgspec

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.errors import BatonError, invalid_field
from baton.internal.v1.cluster_pb2 import Instance
from baton.tenancy.records.adapters import AdapterRecord
from baton.tenancy.records.providers import Provider

_LISTED = 16
"""Most names of models in an error."""


async def model_names(etcd: Etcd, cluster: str, besides: Collection[str] = ()) -> set[str]:
    """Return the names of a cluster's models, kept models, adapters and providers' models.

    Args:
        etcd: the connection.
        cluster: the cluster's name.
        besides: adapters that are left out.

    Raises:
        EtcdError: etcd is unavailable.
    """
    cards, _ = await etcd.list(prefix := keys.models(cluster))
    names = {key.removeprefix(prefix).rpartition("/")[0] for key, _ in cards}
    kept, _ = await etcd.list(prefix := keys.kept(cluster))
    names |= {key.removeprefix(prefix) for key, _ in kept}
    instances, _ = await etcd.list(keys.instances(cluster))
    adapters = {one.name for _, value in instances for one in keys.decode(Instance, value).adapters}
    registered, _ = await etcd.list(keys.adapters(cluster))
    for _, value in registered:
        record = msgspec.json.decode(value, type=AdapterRecord)
        adapters |= {record.id} if record.base else set()
    names |= adapters.difference(besides)
    providers, _ = await etcd.list(keys.providers(cluster))
    for _, value in providers:
        names |= set(msgspec.json.decode(value, type=Provider).names)
    return names


def unknown_model(field: str, name: str, known: Collection[str]) -> BatonError:
    """Return the error of a name that is none of the cluster's, which are `known`."""
    has = f"which has: {listed(known)}"
    return invalid_field(field, f"{name[:200]!r} is no model or adapter of this cluster, {has}")


def listed(names: Collection[str]) -> str:
    """Return the first names for an error, or `none`."""
    return ", ".join(sorted(names)[:_LISTED]) or "none"
