"""Changes to policies of models, made from the command line."""

from baton.errors import invalid_field
from baton.tenancy.admin.cluster import ClusterAdministration
from baton.tenancy.admin.model_names import model_names, unknown_model
from baton.tenancy.records.audit import CLUSTER
from baton.tenancy.records.policies import ModelPolicy, check_policy_with_others
from baton.tenancy.records.store import (
    RecordChange,
    invalid_record,
    not_found,
    require_valid,
)
from baton.tenancy.records.tenants import Tenant

_CHANGED = tuple(name for name in ModelPolicy.__struct_fields__ if name not in ("id", "version"))


class PolicyAdministration(ClusterAdministration):
    """Reads and changes policies of models. Arguments as of `ClusterAdministration`."""

    async def policies(self) -> list[ModelPolicy]:
        """Return the policies, by the model's name."""
        return [record async for record in self._store.all(ModelPolicy) if not record.removed]

    async def set(self, wanted: ModelPolicy, *, missing: bool = False) -> ModelPolicy:
        """Create the policy of a model, or replace all of it, atomically.

        Args:
            wanted: the policy.
            missing: allow models that the cluster does not have yet.

        Raises:
            BatonError: INVALID_FIELD, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[ModelPolicy]:
            require_valid(wanted)
            try:
                check_policy_with_others(wanted, await self.policies())
            except ValueError as error:
                raise invalid_record(error) from None
            if not missing:
                await self._require_models(wanted)
            for tenant in wanted.tenants:
                if not await self._store.exists(Tenant, tenant):
                    raise invalid_field(
                        "tenants",
                        f"tenant {tenant!r} does not exist: list them with `baton tenants ls`",
                    )
            return await self._change(wanted)

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def remove(self, name: str) -> ModelPolicy:
        """Remove the policy of a model; nothing limits requests for it then.

        Raises:
            BatonError: NOT_FOUND, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[ModelPolicy]:
            if name not in {one.id for one in await self.policies()}:
                raise not_found(f"model {name!r} has no policy: list them with `baton policies ls`")
            return await self._change(ModelPolicy(id=name, removed=True))

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def _require_models(self, wanted: ModelPolicy) -> None:
        known = await model_names(self._etcd, self._cluster)
        for field, name in (
            ("model", wanted.id),
            *(("fallbacks", one) for one in wanted.fallbacks),
        ):
            if name not in known:
                raise unknown_model(field, name, known)

    async def _change(self, wanted: ModelPolicy) -> RecordChange[ModelPolicy]:
        return await self._replaced(wanted, "model_policy", _CHANGED, removed=wanted.removed)
