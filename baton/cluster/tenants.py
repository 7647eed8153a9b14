"""What the cluster keeps of tenants: the secret salt of their KV keys."""

import secrets

from baton.cluster import keys
from baton.cluster.etcd import Etcd, EtcdError
from baton.errors import BatonError, Reason
from baton.internal.v1.cluster_pb2 import TenantPolicy

DEFAULT_TENANT = "default"
"""The tenant of every request, until API keys name others."""
SALT_BYTES = 32


class CacheSalts:
    """Salts by tenant, which are the same in every process and for ever.

    A process has one. A salt is read from etcd once; etcd may go away afterwards.
    """

    def __init__(self, etcd: Etcd, cluster: str) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._salts: dict[str, bytes] = {}

    async def get(self, tenant: str) -> bytes:
        """Return the salt of a tenant, 32 bytes; the first process that needs it creates it.

        Raises:
            BatonError: UNAVAILABLE, it is not known yet, and etcd is away or the tenant's policy is
                unreadable or has no salt; the cause says which.
        """
        salt = self._salts.get(tenant)
        if salt is None:
            try:
                salt = self._salts[tenant] = await self._read(tenant)
            except (EtcdError, ValueError) as error:
                raise BatonError(
                    Reason.UNAVAILABLE, "the tenant's policy cannot be read now", retry_after=1.0
                ) from error
        return salt

    async def _read(self, tenant: str) -> bytes:
        key = keys.tenant(self._cluster, tenant)
        policy = TenantPolicy(name=tenant, cache_salt=secrets.token_bytes(SALT_BYTES))
        if not await self._etcd.create(key, keys.encode(policy)):
            stored = await self._etcd.get(key)
            policy = keys.decode(TenantPolicy, stored or b"")
        if len(policy.cache_salt) < SALT_BYTES:
            raise ValueError(f"the policy at {key} has no salt of {SALT_BYTES} bytes")
        return policy.cache_salt
