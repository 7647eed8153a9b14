"""Changes to the adapters that workers load while they serve."""

import msgspec

from baton.cluster import keys
from baton.errors import invalid_field
from baton.internal.v1.cluster_pb2 import Instance, ModelCard
from baton.tenancy.admin.cluster import ClusterAdministration
from baton.tenancy.admin.model_names import listed, model_names
from baton.tenancy.records.adapters import AdapterRecord, check_adapter_with_others
from baton.tenancy.records.aliases import ModelAlias
from baton.tenancy.records.audit import CLUSTER
from baton.tenancy.records.store import (
    RecordChange,
    invalid_record,
    not_found,
    require_valid,
)

_CHANGED = ("base", "location", "digest", "rank", "bytes")


class AdapterAdministration(ClusterAdministration):
    """Reads and changes adapters. Arguments as of `ClusterAdministration`."""

    async def adapters(self) -> list[AdapterRecord]:
        """Return the adapters, by name."""
        return [record async for record in self._store.all(AdapterRecord) if record.base]

    async def get(self, name: str) -> AdapterRecord:
        """Return an adapter.

        Raises:
            BatonError: NOT_FOUND.
            EtcdError: etcd is unavailable.
        """
        for one in await self.adapters():
            if one.id == name:
                return one
        shown = name.encode("unicode_escape").decode()[:200]
        raise not_found(
            f"adapter {shown!r} is not registered: list adapters with `baton adapters ls`"
        )

    async def bases(self) -> list[str]:
        """Return the names of the models whose workers load adapters, sorted.

        Raises:
            EtcdError: etcd is unavailable.
        """
        found, _ = await self._etcd.list(keys.models(self._cluster))
        cards = [keys.decode(ModelCard, value) for _, value in found]
        return sorted({card.name for card in cards if card.HasField("adapter_limits")})

    async def cards(self, base: str) -> list[ModelCard]:
        """Return the cards of a model's workers, at least one.

        Raises:
            BatonError: INVALID_FIELD: no worker serves the model.
            EtcdError: etcd is unavailable.
        """
        prefix = keys.models(self._cluster)
        found, _ = await self._etcd.list(prefix)
        names = {key: key.removeprefix(prefix).rpartition("/")[0] for key, _ in found}
        cards = [keys.decode(ModelCard, value) for key, value in found if names[key] == base]
        if not cards:
            shown, has = base.encode("unicode_escape").decode()[:200], listed(set(names.values()))
            raise invalid_field(
                "base", f"{shown!r} is no model with workers in this cluster, which has: {has}"
            )
        return cards

    async def add(self, wanted: AdapterRecord, *, replace: bool = False) -> AdapterRecord:
        """Register an adapter, atomically.

        Args:
            wanted: the adapter, already checked against its model.
            replace: allow that one of its name is registered, which it replaces.

        Raises:
            BatonError: INVALID_FIELD, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[AdapterRecord]:
            require_valid(wanted)
            others = await self.adapters()
            if not replace and wanted.id in {one.id for one in others}:
                raise invalid_field(
                    "adapter", f"{wanted.id} is registered: remove it first, or replace it"
                )
            # Workers may still have what was removed.
            known = {record.id async for record in self._store.all(AdapterRecord)}
            names = await model_names(self._etcd, self._cluster, known)
            names |= {one.id async for one in self._store.all(ModelAlias) if one.targets}
            if wanted.id in names:
                raise invalid_field(
                    "adapter", f"{wanted.id} is a model, adapter or alias of this cluster"
                )
            try:
                check_adapter_with_others(wanted, others)
            except ValueError as error:
                raise invalid_record(error) from None
            return await self._change(wanted)

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def remove(self, name: str) -> AdapterRecord:
        """Remove an adapter: new requests for it are rejected, and those that run end.

        Raises:
            BatonError: NOT_FOUND, ABORTED.
            EtcdError: etcd is unavailable.
        """

        async def plan() -> RecordChange[AdapterRecord]:
            known = await self.get(name)
            return await self._change(msgspec.structs.replace(known, base=""))

        return await self._store.commit(CLUSTER, self._actor, plan)

    async def serving(self) -> dict[tuple[str, str], int]:
        """Return how many workers have verified an adapter, by its name and digest.

        Raises:
            EtcdError: etcd is unavailable.
        """
        found: dict[tuple[str, str], int] = {}
        stored, _ = await self._etcd.list(keys.instances(self._cluster))
        for _, value in stored:
            for one in keys.decode(Instance, value).adapters:
                key = one.name, one.digest.hex()
                found[key] = found.get(key, 0) + 1
        return found

    async def _change(self, wanted: AdapterRecord) -> RecordChange[AdapterRecord]:
        stamped = msgspec.structs.replace(wanted, created_seconds=self._store.now())
        return await self._replaced(stamped, "adapter", _CHANGED, removed=not wanted.base)
