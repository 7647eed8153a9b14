"""What the cluster knows of tenants."""

import secrets
from weakref import WeakKeyDictionary

from baton.cluster import keys
from baton.cluster.etcd import Etcd
from baton.internal.v1.cluster_pb2 import TenantPolicy

SALT_BYTES = 32

_known: WeakKeyDictionary[Etcd, dict[str, bytes]] = WeakKeyDictionary()


async def tenant_salt(etcd: Etcd, cluster: str, tenant: str) -> bytes:
    """The secret salt of a tenant's KV keys, 32 bytes; the same for everybody, for ever.

    The first who asks creates it. It is asked of etcd once per connection.

    Raises:
        EtcdError: it is not known yet and etcd is away.
        ValueError: the stored policy is unreadable or has no salt.
    """
    key = keys.tenant(cluster, tenant)
    salts = _known.setdefault(etcd, {})
    if key not in salts:
        policy = TenantPolicy(name=tenant, cache_salt=secrets.token_bytes(SALT_BYTES))
        if not await etcd.create(key, keys.encode(policy)):
            stored = await etcd.get(key)
            policy = keys.decode(TenantPolicy, stored or b"")
        if len(policy.cache_salt) < SALT_BYTES:
            raise ValueError(f"the policy at {key} has no salt of {SALT_BYTES} bytes")
        salts[key] = policy.cache_salt
    return salts[key]
