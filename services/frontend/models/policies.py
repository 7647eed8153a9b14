"""Policies of models, from their records in etcd: who may ask, and how much."""

import asyncio
from collections.abc import Sequence

from baton.errors import BatonError, Reason
from baton.telemetry.logs import get_logger
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.classes import CLASSES
from baton.tenancy.records.policies import ModelPolicy
from baton.tenancy.records.tenants import parse
from services.frontend.models.model import ResolvedModel

_CLASS_NAMES: dict[int, str] = {number: name for name, number in CLASSES.items()}

log = get_logger(__name__)


class Policies:
    """A `baton.cluster.follow.Listener` of policies. Lives on the event loop.

    A change applies from the next request on. What is not listed stays, so that an etcd that lost
    its data changes nothing.
    """

    def __init__(self) -> None:
        self._policies: dict[str, ModelPolicy] = {}
        self._synced = asyncio.Event()

    def get(self, name: str) -> ModelPolicy | None:
        """Return the policy of a model or adapter; None: it has none."""
        return self._policies.get(name)

    def permitted(self, who: Principal, model: str, adapter: str = "") -> bool:
        """Return whether a tenant may ask for a model, or for one of its adapters."""
        for one in self._of(model, adapter):
            if one.tenants and who.tenant.id not in one.tenants:
                return False
        return True

    def require(self, who: Principal, found: ResolvedModel) -> None:
        """Check that a tenant may ask for a model, or for its adapter.

        Raises:
            BatonError: MODEL_NOT_ALLOWED.
        """
        if not self.permitted(who, found.model.name, found.adapter):
            raise _not_allowed(
                found,
                f"is not for tenant {who.tenant.id!r}; /v1/models lists permitted models",
            )

    def require_class(self, found: ResolvedModel, priority: int) -> None:
        """Check that requests of a priority class may ask for a model, or for its adapter.

        Raises:
            BatonError: MODEL_NOT_ALLOWED.
        """
        name = class_name(priority)
        for one in self._of(found.model.name, found.adapter):
            if one.classes and name not in one.classes:
                raise _not_allowed(
                    found,
                    f"is not for requests of class {name!r}, only of {', '.join(one.classes)}",
                )

    def context_tokens(self, who: Principal, found: ResolvedModel) -> int | None:
        """Return the most tokens of a request of a tenant's tier; None: no policy limits them."""
        policies = self._of(found.model.name, found.adapter)
        if not policies:
            return None
        limits = [one.context_tokens.get(who.tenant.tier.value) for one in policies]
        return min((one for one in limits if one is not None), default=None)

    async def wait_synced(self) -> None:
        """Return once etcd was listed."""
        await self._synced.wait()

    def _of(self, model: str, adapter: str) -> Sequence[ModelPolicy]:
        if not self._policies:
            return ()
        found = (self._policies.get(model), self._policies.get(adapter) if adapter else None)
        return [one for one in found if one is not None]

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        try:
            policy = parse(ModelPolicy, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))
            return
        if policy.removed:
            self._policies.pop(name, None)
        else:
            self._policies[name] = policy

    def end(self) -> None:
        self._synced.set()

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is None:
            self._policies.pop(name, None)
        else:
            self.take(name, value)


def class_name(priority: int) -> str:
    """Return the name of a priority class; requests that name none are interactive."""
    return _CLASS_NAMES.get(priority, "interactive")


def _not_allowed(found: ResolvedModel, why: str) -> BatonError:
    field, name = ("adapter", found.adapter) if found.adapter else ("model", found.model.name)
    return BatonError(Reason.MODEL_NOT_ALLOWED, f"{field} {name!r} {why}", field=field)
