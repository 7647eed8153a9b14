"""The rules of `auto`, from their record in etcd."""

import asyncio

from baton.auto.rules import CompiledRules
from baton.telemetry.logs import get_logger
from baton.tenancy.records.auto import AUTO, AutoRules
from baton.tenancy.records.tenants import parse

log = get_logger(__name__)


class CurrentRules:
    """A `baton.cluster.follow.Listener` of the rules of `auto`. Lives on the event loop.

    A change applies from the next request on; what runs keeps its model. What is not listed stays,
    so that an etcd that lost its data changes nothing.
    """

    def __init__(self) -> None:
        self.rules: CompiledRules | None = None
        """None: none are set."""
        self._synced = asyncio.Event()

    async def wait_synced(self) -> None:
        """Return once etcd was listed."""
        await self._synced.wait()

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        try:
            record = parse(AutoRules, name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))
            return
        if name == AUTO:
            self.rules = CompiledRules(record) if record.models else None

    def end(self) -> None:
        self._synced.set()

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is not None:
            self.take(name, value)
        elif name == AUTO:
            self.rules = None
