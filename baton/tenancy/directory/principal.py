"""The principal of a request: the tenant, project and key, and what they permit."""

import msgspec

from baton.cluster.tenants import DEFAULT_TENANT
from baton.errors import BatonError, Reason
from baton.tenancy.records.tenants import Key, Project, Scope, Tenant, Tier


class Principal(msgspec.Struct, frozen=True, gc=False):
    """A key with its project and tenant, as in their current records."""

    tenant: Tenant
    project: Project
    key: Key

    def require(self, *scopes: Scope) -> None:
        """Check that the key has at least one of some scopes.

        Raises:
            BatonError: PERMISSION_DENIED.
        """
        if not any(scope in self.key.scopes for scope in scopes):
            raise BatonError(
                Reason.PERMISSION_DENIED,
                f"the API key does not have the scope {' or '.join(map(repr, map(str, scopes)))} "
                f"that this request requires; its scopes: {', '.join(self.key.scopes)}",
            )

    def has(self, scope: Scope) -> bool:
        """Return whether the key has a scope."""
        return scope in self.key.scopes

    def may_use(self, name: str) -> bool:
        """Return whether the key may be used for a model or adapter with that name."""
        return not self.key.models or name in self.key.models

    def require_model(self, name: str, adapter: str = "") -> None:
        """Check that the key may be used for a model, or for one of its adapters.

        If an adapter is given, its name is checked. The error does not reveal whether the model
        exists.

        Raises:
            BatonError: MODEL_NOT_ALLOWED.
        """
        if not self.may_use(adapter or name):
            field, what = ("adapter", adapter) if adapter else ("model", name)
            shown = what if len(what) <= 200 else what[:200] + "…"
            raise BatonError(
                Reason.MODEL_NOT_ALLOWED,
                f"the API key does not permit {field} {shown!r}; /v1/models lists permitted models",
                field=field,
            )

    def capped(self, priority: int) -> int:
        """Return a request's `PriorityClass`, or the tier's highest if that is lower."""
        return min(priority, self.tenant.tier.highest_priority)


LOCAL = Principal(
    Tenant(id=DEFAULT_TENANT, tier=Tier.ENTERPRISE),
    Project(id="", tenant=DEFAULT_TENANT, name=""),
    Key(id="", project="", sha256=b"", scopes=tuple(Scope)),
)
"""Principal of requests when authentication is off: the one tenant, with all permissions."""

NOBODY = Principal(
    Tenant(id="", tier=Tier.FREE),
    Project(id="", tenant="", name=""),
    Key(id="", project="", sha256=b"", scopes=(), models=("",)),
)
"""Principal of requests before authentication: no permissions."""
