"""Reads what tenants have stored, and checks their limits."""

from baton.conversations.failures import failures
from baton.conversations.storage.records import StorageLimits, StorageUse, too_many_bytes
from baton.postgres.database import Database

_EXISTS = "select to_regclass('tenant_storage') is not null as exists"
USED = """
select coalesce(sum(conversations), 0)::bigint as conversations,
    coalesce(sum(bytes), 0)::bigint as bytes
from tenant_storage where tenant = $1
"""
"""Triggers count: each row of the table is that of a month and a slot."""


class TenantStorage:
    """What tenants have stored, as Postgres counts it. On the event loop.

    Errors, besides those that a method names: BatonError UNAVAILABLE, if the database is away.

    Args:
        database: of stored conversations.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._counts = False
        """Whether the schema is known to count."""

    async def counts(self) -> bool:
        """Return whether the schema counts: it may be that of an earlier release."""
        if not self._counts:
            with failures():
                rows = await self._database.fetch(_EXISTS)
            self._counts = rows[0]["exists"]
        return self._counts

    async def use(self, tenant: str) -> StorageUse | None:
        """Return what a tenant has stored; None: the schema does not count."""
        if not await self.counts():
            return None
        with failures():
            rows = await self._database.fetch(USED, tenant)
        return StorageUse(*rows[0])

    async def check_bytes(self, tenant: str, limits: StorageLimits) -> None:
        """Check that a tenant may store more. Reads nothing if it has no limit.

        Raises:
            BatonError: INSUFFICIENT_QUOTA.
        """
        if not limits.bytes:
            return
        used = await self.use(tenant)
        if used is not None and used.bytes >= limits.bytes:
            raise too_many_bytes(tenant, used.bytes, limits.bytes)
