"""What operators decide about each tenant that matters to who goes next. Plain values."""

from typing import NamedTuple


class TenantShare(NamedTuple):
    """How a tenant's requests go beside those of others."""

    tier: int = 1
    """Rank of its tier; 0 goes first."""
    weight: float = 1.0
    """Shares of what workers compute."""


DEFAULT_SHARE = TenantShare()
"""Of a tenant without a record: where no API keys are asked for, there are none."""


class TenantShares:
    """Shares by tenant. Bounded by the tenants that there are. One loop owns it."""

    def __init__(self) -> None:
        self._shares: dict[str, TenantShare] = {}

    def of(self, tenant: str) -> TenantShare:
        """Return what holds for a tenant's next request."""
        return self._shares.get(tenant, DEFAULT_SHARE)

    def set(self, tenant: str, share: TenantShare) -> None:
        """Let a share hold for a tenant from its next request on."""
        if share == DEFAULT_SHARE:
            self._shares.pop(tenant, None)
        else:
            self._shares[tenant] = share
