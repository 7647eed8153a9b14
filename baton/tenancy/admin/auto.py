"""Changes to the rules of `auto`, made from the command line."""

from baton.errors import invalid_field
from baton.tenancy.admin.cluster import ClusterAdministration
from baton.tenancy.admin.model_names import model_names, unknown_model
from baton.tenancy.records.aliases import ModelAlias
from baton.tenancy.records.audit import CLUSTER
from baton.tenancy.records.auto import AUTO, AutoRules
from baton.tenancy.records.store import RecordChange, not_found, require_valid


class AutoAdministration(ClusterAdministration):
    """Reads and changes the rules of `auto`. Arguments as of `ClusterAdministration`."""

    async def rules(self) -> AutoRules | None:
        """Return the rules; None: none are set."""
        return next(
            (one for one in [r async for r in self._store.all(AutoRules)] if one.models), None
        )

    async def set(self, wanted: AutoRules, *, missing: bool = False) -> AutoRules:
        """Replace all rules, atomically.

        Args:
            wanted: the rules.
            missing: allow models that the cluster does not have yet.

        Raises:
            BatonError: INVALID_FIELD, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[AutoRules]:
            require_valid(wanted)
            if not wanted.models:
                raise invalid_field("models", "at least one model is needed, where no rule matches")
            known = await model_names(self._etcd, self._cluster)
            aliases = {one.id async for one in self._store.all(ModelAlias) if one.targets}
            if AUTO in known | aliases:
                raise invalid_field(AUTO, "is a model, adapter or alias of this cluster: rename it")
            for name in wanted.names:
                if name in aliases:
                    raise invalid_field("models", f"{name} is an alias: name a model")
                if name not in known and not missing:
                    raise unknown_model("models", name, known)
            return await self._change(wanted)

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def remove(self) -> AutoRules:
        """Remove all rules; requests for `auto` are then rejected as for an unknown model.

        Raises:
            BatonError: NOT_FOUND, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[AutoRules]:
            if await self.rules() is None:
                raise not_found("auto has no rules: set them with `baton auto set`")
            return await self._change(AutoRules())

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def _change(self, wanted: AutoRules) -> RecordChange[AutoRules]:
        fields = ("models", "rules", "max_wait_seconds")
        return await self._replaced(wanted, "auto_rules", fields, removed=not wanted.models)
