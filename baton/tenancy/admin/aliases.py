"""Changes to aliases of models, made from the command line."""

from baton.errors import invalid_field
from baton.tenancy.admin.cluster import ClusterAdministration
from baton.tenancy.admin.model_names import model_names, unknown_model
from baton.tenancy.records.aliases import AliasTarget, ModelAlias, check_with_others
from baton.tenancy.records.audit import CLUSTER
from baton.tenancy.records.store import (
    RecordChange,
    invalid_record,
    not_found,
    require_valid,
)


class AliasAdministration(ClusterAdministration):
    """Reads and changes aliases. Arguments as of `ClusterAdministration`."""

    async def aliases(self) -> list[ModelAlias]:
        """Return the aliases, by name."""
        return [record async for record in self._store.all(ModelAlias) if record.targets]

    async def point(
        self, name: str, targets: tuple[AliasTarget, ...], *, missing: bool = False
    ) -> ModelAlias:
        """Create an alias, or point it at other models, atomically.

        Args:
            name: the alias.
            targets: what it means.
            missing: allow models that the cluster does not have yet.

        Raises:
            BatonError: INVALID_FIELD, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[ModelAlias]:
            known = await model_names(self._etcd, self._cluster)
            if name in known:
                raise invalid_field("alias", f"{name} is a model or adapter of this cluster")
            if not missing:
                for target in targets:
                    if target.model not in known:
                        raise unknown_model("targets", target.model, known)
            return await self._change(ModelAlias(id=name, targets=targets))

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def remove(self, name: str) -> ModelAlias:
        """Remove an alias; requests for it are then rejected as for an unknown model.

        Raises:
            BatonError: NOT_FOUND, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[ModelAlias]:
            if name not in {one.id for one in await self.aliases()}:
                raise not_found(f"alias {name!r} does not exist: list them with `baton aliases ls`")
            return await self._change(ModelAlias(id=name))

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def _change(self, wanted: ModelAlias) -> RecordChange[ModelAlias]:
        require_valid(wanted)
        try:
            check_with_others(wanted, await self.aliases())
        except ValueError as error:
            raise invalid_record(error) from None
        removed = not wanted.targets
        return await self._replaced(wanted, "model_alias", ("targets",), removed=removed)
