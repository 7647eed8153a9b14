"""Changes to the policies of priority classes, made from the command line."""

from typing import Any

from baton.tenancy.admin.cluster import ClusterAdministration
from baton.tenancy.records.audit import CLUSTER
from baton.tenancy.records.classes import CLASSES, ClassPolicy, check_floors
from baton.tenancy.records.store import (
    RecordChange,
    invalid_record,
    not_found,
    require_valid,
)


class ClassAdministration(ClusterAdministration):
    """Reads and changes the classes' records. Arguments as of `ClusterAdministration`."""

    async def classes(self) -> list[ClassPolicy]:
        """Return the policy of each class, including classes without a record."""
        known = {record.id: record async for record in self._store.all(ClassPolicy)}
        return [known.get(name) or ClassPolicy(id=name) for name in CLASSES]

    async def update(self, name: str, **changes: Any) -> ClassPolicy:
        """Change fields of a class; 0 resets one.

        Raises:
            BatonError: NOT_FOUND, INVALID_FIELD, ABORTED.
            EtcdError: etcd is unavailable.
        """
        if name not in CLASSES:
            raise not_found(f"priority class {name!r} does not exist: use {', '.join(CLASSES)}")

        async def plan() -> RecordChange[ClassPolicy]:
            others = [one for one in await self.classes() if one.id != name]
            event = "priority_class.updated"
            if await self._store.exists(ClassPolicy, name):
                change = await self._store.changed(ClassPolicy, name, event, lambda _: changes)
            else:
                change = RecordChange(event, ClassPolicy(id=name, **changes))
            require_valid(change.after)
            try:
                check_floors([*others, change.after])
            except ValueError as error:
                raise invalid_record(error) from None
            return change

        return await self._store.commit(CLUSTER, self._actor, plan)
