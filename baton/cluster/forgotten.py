"""Tenants that were deleted: what frontends' disks and stores have of them is dropped."""

from collections.abc import Callable

import msgspec

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd
from baton.telemetry.logs import get_logger

log = get_logger(__name__)


class ForgottenTenant(msgspec.Struct, frozen=True):
    """When a tenant was deleted."""

    at_ms: int
    """Milliseconds since the Unix epoch: what began before is deleted."""
    usage: bool
    """Whether its usage records are deleted too."""


_decode = msgspec.json.Decoder(ForgottenTenant).decode


async def mark_forgotten(etcd: Etcd, cluster: str, tenant: str, mark: ForgottenTenant) -> None:
    """Let processes drop what they have not stored of a tenant.

    Raises:
        EtcdError: etcd does not respond.
    """
    await etcd.put(keys.forgotten(cluster) + tenant, msgspec.json.encode(mark))


class ForgottenTenants:
    """The deleted tenants of a cluster, as a `Listener` of `follow`. One per process."""

    def __init__(self) -> None:
        self._known: dict[str, ForgottenTenant] = {}
        self.on_change: list[Callable[[str], None]] = []
        """Called with the id of a tenant that is deleted."""

    def __len__(self) -> int:
        """Return the number of deleted tenants."""
        return len(self._known)

    def has(self, tenant: str, began_ms: int, *, usage: bool = False) -> bool:
        """Return whether what began at a time is of a tenant that was deleted later.

        Args:
            tenant: its id.
            began_ms: milliseconds since the Unix epoch.
            usage: whether it is a usage record.
        """
        mark = self._known.get(tenant)
        return mark is not None and began_ms <= mark.at_ms and (mark.usage or not usage)

    def begin(self, revision: int) -> None:
        """Start a list, as a `Listener`: marks are only added."""

    def take(self, name: str, value: bytes) -> None:
        try:
            mark = _decode(value)
        except msgspec.DecodeError:
            log.warning("cluster.record.unreadable", etcd_key=name)
            return
        if self._known.get(name) != mark:
            self._known[name] = mark
            for call in self.on_change:
                call(name)

    def end(self) -> None:
        """Finish a list, as a `Listener`."""

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is not None:
            self.take(name, value)
