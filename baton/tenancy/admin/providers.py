"""Changes to providers, made from the command line."""

import msgspec

from baton.errors import invalid_field
from baton.tenancy.admin.cluster import ClusterAdministration
from baton.tenancy.admin.model_names import model_names
from baton.tenancy.records.aliases import ModelAlias
from baton.tenancy.records.audit import CLUSTER
from baton.tenancy.records.providers import Provider, check_provider_with_others
from baton.tenancy.records.store import (
    RecordChange,
    invalid_record,
    not_found,
    require_valid,
)

_CHANGED = (
    *("api", "url", "keys", "models", "quirks", "http"),
    *("first_token_seconds", "token_seconds", "connections"),
)


class ProviderAdministration(ClusterAdministration):
    """Reads and changes providers. Arguments as of `ClusterAdministration`."""

    async def providers(self) -> list[Provider]:
        """Return the providers, by name."""
        return [record async for record in self._store.all(Provider) if record.models]

    async def get(self, name: str) -> Provider:
        """Return a provider.

        Raises:
            BatonError: NOT_FOUND.
            EtcdError: etcd is unavailable.
        """
        for one in await self.providers():
            if one.id == name:
                return one
        raise not_found(f"provider {name!r} does not exist: list them with `baton providers ls`")

    async def set(self, wanted: Provider) -> Provider:
        """Create a provider, or replace all of it, atomically.

        Raises:
            BatonError: INVALID_FIELD, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[Provider]:
            require_valid(wanted)
            if not wanted.models:
                raise invalid_field("models", "a provider needs at least one model")
            others = await self.providers()
            names = await model_names(self._etcd, self._cluster)
            names |= {one.id async for one in self._store.all(ModelAlias) if one.targets}
            names -= {name for one in others for name in one.names}
            for name in wanted.names:
                if name in names:
                    raise invalid_field(
                        "models", f"{name} is a model, adapter or alias of this cluster"
                    )
            try:
                check_provider_with_others(wanted, others)
            except ValueError as error:
                raise invalid_record(error) from None
            return await self._change(wanted)

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def remove(self, name: str) -> Provider:
        """Remove a provider; requests for its models are then rejected as for unknown ones.

        Raises:
            BatonError: NOT_FOUND, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[Provider]:
            known = await self.get(name)
            return await self._change(msgspec.structs.replace(known, models=()))

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def _change(self, wanted: Provider) -> RecordChange[Provider]:
        stamped = msgspec.structs.replace(wanted, created_seconds=self._store.now())
        return await self._replaced(stamped, "provider", _CHANGED, removed=not wanted.models)
