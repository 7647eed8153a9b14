"""Aliases of models, from their records in etcd: what a name in a request means."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType

from baton.telemetry.logs import get_logger
from baton.tenancy.directory.principal import Principal
from baton.tenancy.records.aliases import ModelAlias
from baton.tenancy.records.tenants import parse

log = get_logger(__name__)


class Aliases:
    """A `baton.cluster.follow.Listener` of aliases. Lives on the event loop.

    A change applies from the next request on; what runs keeps its model. What is not listed keeps
    its meaning, so that an etcd that lost its data changes nothing.
    """

    def __init__(self) -> None:
        self._aliases: dict[str, ModelAlias] = {}
        self._synced = asyncio.Event()

    @property
    def all(self) -> Mapping[str, ModelAlias]:
        """Aliases by name; a live view."""
        return MappingProxyType(self._aliases)

    def get(self, name: str) -> ModelAlias | None:
        """Return an alias; None: the name is none."""
        return self._aliases.get(name)

    def of(self, model: str) -> list[str]:
        """Return the aliases that mean a model or adapter, some or all of the time, sorted."""
        return sorted(one.id for one in self._aliases.values() if model in one.names)

    def permitted(self, who: Principal, name: str) -> bool:
        """Return whether a key may be used for a model, an adapter or an alias.

        A key that may be used for an alias may be used for what it means; and for an alias, if it
        may be used for all that it means.
        """
        if who.may_use(name):
            return True
        alias = self.get(name)
        if alias is not None and all(map(who.may_use, alias.names)):
            return True
        return any(map(who.may_use, self.of(name)))

    def require(self, who: Principal, name: str, adapter: str = "") -> None:
        """Check that a key may be used for a model, or for one of its adapters.

        Raises:
            BatonError: MODEL_NOT_ALLOWED.
        """
        if not self.permitted(who, adapter or name):
            who.require_model(name, adapter)

    async def wait_synced(self) -> None:
        """Return once etcd was listed."""
        await self._synced.wait()

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        try:
            alias = parse(ModelAlias, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))
            return
        if alias.targets:
            self._aliases[name] = alias
        else:
            self._aliases.pop(name, None)

    def end(self) -> None:
        self._synced.set()

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is None:
            self._aliases.pop(name, None)
        else:
            self.take(name, value)
