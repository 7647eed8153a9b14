"""Where records are stored in etcd, and how: protobuf JSON under `/baton/<cluster>/`."""

from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from baton.internal.v1.cluster_pb2 import Instance, ModelCard

M = TypeVar("M", bound=Message)

ROOT = "/baton/"
"""Prefix of the records of all clusters; the cluster's name follows, then a slash."""


def cluster(name: str) -> str:
    """Return the prefix of a cluster's records."""
    return f"{ROOT}{name}/"


def cluster_of(key: str) -> str:
    """Return the name of the cluster that a key belongs to."""
    return key.removeprefix(ROOT).partition("/")[0]


def instances(cluster: str) -> str:
    """Return the prefix of `Instance` records; the instance ID follows."""
    return f"/baton/{cluster}/instances/"


def instance(cluster: str, instance_id: str) -> str:
    return instances(cluster) + instance_id


def models(cluster: str) -> str:
    """Return the prefix of `ModelCard` records; the name and its variant follow."""
    return f"/baton/{cluster}/models/"


def model(cluster: str, name: str, variant: str) -> str:
    return f"{models(cluster)}{name}/{variant}"


def kept(cluster: str) -> str:
    """Return the prefix of `KeptModel` records; the model's name follows.

    It is between instances and models, so that members' watches yield them too.
    """
    return f"/baton/{cluster}/kept/"


def tokenizer(cluster: str, digest: bytes, name: str) -> str:
    """Return the prefix of the pieces of a kept model's tokenizer; their numbers follow."""
    return f"/baton/{cluster}/tokenizers/{digest.hex()}/{name}/"


def model_variant(served: Instance | ModelCard) -> str:
    """Return the variant of the model card that describes a worker, or of a card.

    Workers that serve one model name may differ: in KV layout or, while a model is replaced, in
    the tokenizer.
    """
    return f"{served.layout_id.hex()}.{served.tokenizer_digest.hex()}"


def salts(cluster: str) -> str:
    """Return the prefix of `TenantPolicy` records, which are secret; the tenant's ID follows."""
    return f"/baton/{cluster}/tenants/"


def tenant(cluster: str, name: str) -> str:
    """Return the key of a tenant's `TenantPolicy`."""
    return salts(cluster) + name


def tenancy(cluster: str) -> str:
    """Return the prefix of the records of `baton.tenancy`; kind and ID follow."""
    return f"/baton/{cluster}/tenancy/"


def tenants(cluster: str) -> str:
    """Return the prefix of `Tenant` records, which contain no secrets; the tenant's ID follows."""
    return f"{tenancy(cluster)}tenants/"


def classes(cluster: str) -> str:
    """Return the prefix of `ClassPolicy` records; the class's name follows."""
    return f"{tenancy(cluster)}classes/"


def aliases(cluster: str) -> str:
    """Return the prefix of `ModelAlias` records; the alias follows."""
    return f"{tenancy(cluster)}aliases/"


def adapters(cluster: str) -> str:
    """Return the prefix of `AdapterRecord` records; the adapter's name follows."""
    return f"{tenancy(cluster)}adapters/"


def providers(cluster: str) -> str:
    """Return the prefix of `Provider` records; the provider's name follows."""
    return f"{tenancy(cluster)}providers/"


def auto(cluster: str) -> str:
    """Return the prefix of the `AutoRules` record; its name, `auto`, follows."""
    return f"{tenancy(cluster)}auto/"


def policies(cluster: str) -> str:
    """Return the prefix of `ModelPolicy` records; the model's name follows."""
    return f"{tenancy(cluster)}policies/"


def key_uses(cluster: str) -> str:
    """Return the prefix of the times at which API keys were last used; the key's ID follows."""
    return f"/baton/{cluster}/uses/"


def audit(cluster: str, tenant: str) -> str:
    """Return the key of a tenant's latest change; its audit records follow it after a slash."""
    return f"/baton/{cluster}/audit/{tenant}"


def spending(cluster: str) -> str:
    """Return the prefix of budget spending; the month, the subject and its ID follow."""
    return f"/baton/{cluster}/spending/"


def spent(cluster: str, month: int, subject: str, ident: str) -> str:
    """Return the key of the amount spent from one budget in a month."""
    return f"{spending(cluster)}{month}/{subject}/{ident}"


def turns(cluster: str) -> str:
    """Return the prefix of `ModelTurn` records; the model's name follows."""
    return f"/baton/{cluster}/turns/"


def demand(cluster: str) -> str:
    """Return the prefix of `RouterDemand` records; the router's instance ID follows."""
    return f"/baton/{cluster}/demand/"


def pending(cluster: str) -> str:
    """Return the prefix of what waits for Postgres at a frontend: id and record follow."""
    return f"/baton/{cluster}/pending/"


def forgotten(cluster: str) -> str:
    """Return the prefix of deleted tenants; the tenant's ID follows."""
    return f"/baton/{cluster}/forgotten/"


def refused(cluster: str) -> str:
    """Return the prefix of rejected requests; the hexadecimal digest of one follows."""
    return f"/baton/{cluster}/refused/"


def lasting(cluster: str) -> tuple[str, ...]:
    """Return the prefixes of the records that outlive the cluster's processes: what is lost with
    etcd, and what a backup contains, in the order in which it is restored.

    Other records have leases, or are written again by the processes that they are of.
    """
    return (
        salts(cluster),
        tenancy(cluster),
        f"/baton/{cluster}/audit/",
        spending(cluster),
        key_uses(cluster),
        forgotten(cluster),
    )


def members_range(cluster: str) -> tuple[str, str]:
    """Return the start and end (exclusive) of the range of instances, kept models and models.

    One range, so that one watch yields all in write order.
    """
    return instances(cluster), prefix_end(models(cluster))


def prefix_end(prefix: str) -> str:
    """Return the first key after all that begin with `prefix`, which ends in an ASCII character."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def encode(record: Message) -> bytes:
    """Return a record in its stored form."""
    text = json_format.MessageToJson(record, preserving_proto_field_name=True, indent=None)
    return text.encode()


def decode(kind: type[M], value: bytes) -> M:
    """Return the record in a stored value; fields that this release does not know are ignored.

    Raises:
        ValueError: the value is not such a record.
    """
    try:
        return json_format.Parse(value, kind(), ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        raise ValueError(f"not a {kind.DESCRIPTOR.name}: {error}") from error
