"""What operators configure per tenant that affects the order of requests. Plain values."""

from typing import NamedTuple


class TenantShare(NamedTuple):
    """How a tenant's requests are ordered among those of others."""

    tier: int = 1
    """Rank of its tier; 0 goes first."""
    weight: float = 1.0
    """Relative share of the workers' computing."""


DEFAULT_SHARE = TenantShare()
"""For tenants without a record: without API keys, there are no records."""


class TenantShares:
    """Shares by tenant. Bounded by the number of tenants. Owned by one event loop."""

    def __init__(self) -> None:
        self._shares: dict[str, TenantShare] = {}

    def of(self, tenant: str) -> TenantShare:
        """Return the share that applies to a tenant's next request."""
        return self._shares.get(tenant, DEFAULT_SHARE)

    def set(self, tenant: str, share: TenantShare) -> None:
        """Set a tenant's share, from its next request on."""
        if share == DEFAULT_SHARE:
            self._shares.pop(tenant, None)
        else:
            self._shares[tenant] = share
