"""Per-tenant secrets in etcd: the salt of a tenant's KV keys."""

import asyncio
import secrets
from typing import Protocol

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.errors import BatonError, Reason
from baton.internal.v1.cluster_pb2 import TenantPolicy
from baton.rpc.timing.backoff import Backoff
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

DEFAULT_TENANT = "default"
"""The tenant of requests whose API key does not name another one."""
SALT_BYTES = 32
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.2, 5.0


class Salts(Protocol):
    """Salts by tenant: `CacheSalts`, or a substitute in benchmarks."""

    async def get(self, tenant: str) -> bytes:
        """Return the salt of a tenant, 32 bytes; raise as `CacheSalts.get` does."""


class CacheSalts:
    """Salts by tenant, which are the same in every process and never change.

    One per process. Changes that `follow` delivers for the prefix of salts apply immediately, so
    all tenants' salts are known, including replaced ones. etcd may become unavailable afterwards,
    and return without its data: see `keep`.
    """

    def __init__(self, etcd: Etcd, cluster: str) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._salts: dict[str, bytes] = {}

    async def get(self, tenant: str) -> bytes:
        """Return the salt of a tenant, 32 bytes; the first process that needs it creates it.

        Raises:
            BatonError: UNAVAILABLE, the salt is not known yet, and etcd is unavailable or the
                tenant's policy is unreadable or has no salt; the cause says which.
        """
        salt = self._salts.get(tenant)
        if salt is None:
            try:
                salt = self._salts[tenant] = await self._read(tenant)
            except (EtcdError, ValueError) as error:
                raise BatonError(
                    Reason.UNAVAILABLE,
                    "the tenant's policy is unavailable",
                    retry_after=1.0,
                ) from error
        return salt

    async def replace(self, tenant: str) -> bool:
        """Replace the salt of a tenant: nothing finds its KV any more, and stores evict it.

        Returns:
            Whether it had one.

        Raises:
            EtcdError: etcd does not respond.
            ValueError: its policy is unreadable.
        """
        key = keys.tenant(self._cluster, tenant)
        known = await self._etcd.get(key)
        if known is None:
            return False
        policy = keys.decode(TenantPolicy, known)
        policy.cache_salt = secrets.token_bytes(SALT_BYTES)
        await self._etcd.put(key, keys.encode(policy))
        return True

    def begin(self, revision: int) -> None:
        """Start a list, as a `Listener`; salts that it does not contain are kept, see `keep`."""

    def take(self, name: str, value: bytes) -> None:
        try:
            salt = _salt_of(value)
        except ValueError as error:
            log.warning("tenancy.salt.unreadable", tenant=name, error=str(error))
            return
        if self._salts.get(name, salt) != salt:
            log.warning("tenancy.salt.replaced", tenant=name)
        self._salts[name] = salt

    def end(self) -> None:
        """Finish a list, as a `Listener`."""

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is not None:
            self.take(name, value)

    async def keep(self, etcd_recovered: asyncio.Event) -> None:
        """After each etcd outage, write the known salts to an etcd that has lost them.

        Otherwise the next process would create different salts and find none of the tenants' KV.
        Where one already did, this process adopts its salt. Never returns.

        Args:
            etcd_recovered: set when etcd responds again after an outage; cleared here.
        """
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            await etcd_recovered.wait()
            etcd_recovered.clear()
            try:
                for tenant, salt in list(self._salts.items()):
                    policy = TenantPolicy(name=tenant, cache_salt=salt)
                    if await self._etcd.create(
                        keys.tenant(self._cluster, tenant), keys.encode(policy)
                    ):
                        log.warning("tenancy.salt.restored", tenant=tenant)
                    else:
                        self._salts[tenant] = await self._read(tenant)
            except (EtcdError, ValueError) as error:
                log.warning("tenancy.salt.not_restored", error=str(error))
                etcd_recovered.set()
                await asyncio.sleep(backoff.next())
            else:
                backoff.reset()

    async def _read(self, tenant: str) -> bytes:
        key = keys.tenant(self._cluster, tenant)
        policy = TenantPolicy(name=tenant, cache_salt=secrets.token_bytes(SALT_BYTES))
        if not await self._etcd.create(key, keys.encode(policy)):
            return _salt_of(await self._etcd.get(key) or b"")
        return policy.cache_salt


def _salt_of(value: bytes) -> bytes:
    policy = keys.decode(TenantPolicy, value)
    if len(policy.cache_salt) < SALT_BYTES:
        raise ValueError(f"the TenantPolicy's salt must have {SALT_BYTES} bytes")
    return policy.cache_salt
