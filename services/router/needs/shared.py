"""The demand at each router, shared through etcd: every router adds up those of all."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NoReturn

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.cluster.follow import follow
from baton.internal.v1 import cluster_pb2
from baton.telemetry.logs import get_logger
from services.router.sizing.demand import NO_DEMAND, ModelDemand

WRITE_SECONDS = 1.0
LEASE_SECONDS = 15
"""A router that is gone for this long has no demand."""
SILENCE_SECONDS = 10.0
"""Without an answer of etcd for this long, other routers' demand is not known."""
_LEAVE_SECONDS = 1.0

log = get_logger(__name__)


class SharedDemand:
    """Writes this router's demand, and follows that of the other routers. Lives on the event loop.

    While etcd is unavailable nothing waits for it, and the others' demand is not known. A router
    without a record, of another release or just started, is not known either.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        router_id: instance id of this router.
        routers: returns the instance ids of the live routers.
        clock: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        router_id: str,
        routers: Callable[[], Iterable[str]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._etcd = etcd
        self._prefix = keys.demand(cluster)
        self._router_id = router_id
        self._routers = routers
        self._clock = clock
        self._record = cluster_pb2.RouterDemand()
        self._written: cluster_pb2.RouterDemand | None = None
        self._lease = 0
        self._renewed_at = 0.0
        self._confirmed_at: float | None = None
        self._left = False
        self._is_away = False
        self._records: dict[str, cluster_pb2.RouterDemand] = {}
        """By router; those that cannot be read are left out."""
        self._listed: dict[str, cluster_pb2.RouterDemand] = {}

    @property
    def known(self) -> bool:
        """Whether the demand at every other live router is known."""
        others = set(self._routers()) - {self._router_id}
        if not others:
            return True
        confirmed = self._confirmed_at
        if confirmed is None or self._clock() - confirmed > SILENCE_SECONDS:
            return False
        records = self._records
        return all(one in records and records[one].covered for one in others)

    def others(self) -> dict[str, ModelDemand]:
        """Return the demand by model at the other live routers, as far as it is known."""
        found: dict[str, ModelDemand] = {}
        for router_id in self._routers():
            record = self._records.get(router_id)
            if record is None or router_id == self._router_id:
                continue
            for one in record.models:
                found[one.model] = found.get(one.model, NO_DEMAND).joined(_from_proto(one))
        return found

    def set(self, demands: Mapping[str, ModelDemand], *, covered: bool) -> None:
        """Set the demand at this router, to be written within a second.

        Args:
            demands: by model; those without requests are left out.
            covered: whether arrivals of a whole window were counted.
        """
        record = cluster_pb2.RouterDemand(covered=covered)
        for model, demand in demands.items():
            record.models.append(_to_proto(model, demand))
        self._record = record

    async def follow(self) -> NoReturn:
        """Follow the other routers' records until cancelled."""
        await follow(self._etcd, self._prefix, self)

    async def keep_written(self) -> NoReturn:
        """Write this router's record when it changes, until cancelled."""
        while True:
            try:
                await self.write()
                self._away(None)
            except EtcdError as error:
                self._away(error)
            await asyncio.sleep(WRITE_SECONDS)

    async def write(self) -> None:
        """Renew the lease if it is time, and write the record if it changed.

        Raises:
            EtcdError: etcd is unavailable.
        """
        if self._left:
            return
        now = self._clock()
        if self._lease and now - self._renewed_at >= LEASE_SECONDS / 3:
            if await self._etcd.keep_alive(self._lease) <= 0:
                self._lease = 0
            self._renewed_at = self._confirmed_at = now
        if not self._lease:
            self._lease = await self._etcd.grant(LEASE_SECONDS)
            self._renewed_at, self._written = now, None
        record = self._record
        if record != self._written:
            await self._etcd.put(self._prefix + self._router_id, keys.encode(record), self._lease)
            self._written, self._confirmed_at = record, now

    async def leave(self) -> None:
        """Delete this router's record within a second, and write no other: it stops."""
        self._left = True
        with suppress(EtcdError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                lease, self._lease = self._lease, 0
                if lease:
                    await self._etcd.revoke(lease)

    def begin(self, revision: int) -> None:  # noqa: ARG002  # as Listener has it
        """Start a full list, as of an etcd revision."""
        self._listed = {}

    def take(self, name: str, value: bytes) -> None:
        """Receive the record of one router."""
        record = self._decoded(name, value)
        if record is not None:
            self._listed[name] = record

    def end(self) -> None:
        """Finish a full list."""
        self._records, self._listed = self._listed, {}

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        """Receive that the record of one router was written, or deleted (None)."""
        record = self._decoded(name, value) if value is not None else None
        if record is None:
            self._records.pop(name, None)
        else:
            self._records[name] = record

    def _decoded(self, name: str, value: bytes) -> cluster_pb2.RouterDemand | None:
        try:
            record = keys.decode(cluster_pb2.RouterDemand, value)
            for one in record.models:
                if not _from_proto(one).valid:
                    raise ValueError(f"the demand for model {one.model!r} is out of range")
            return record
        except ValueError as error:
            log.warning("router.demand.unreadable", peer=name, error=str(error))
            return None

    def _away(self, error: EtcdError | None) -> None:
        """Log once that etcd does not respond, and once that it does again."""
        if error is not None and not self._is_away:
            log.warning("router.demand.etcd_unavailable", error=str(error))
        if error is None and self._is_away:
            log.info("router.demand.etcd_recovered")
        self._is_away = error is not None


def _to_proto(model: str, demand: ModelDemand) -> cluster_pb2.ModelDemand:
    return cluster_pb2.ModelDemand(
        model=model,
        arrived_tokens=_rounded(demand.arrived_tokens),
        refused_tokens=_rounded(demand.refused_tokens),
        queued_tokens=_rounded(demand.queued_tokens),
        queued_sequences=int(_rounded(demand.queued_sequences)),
        queued_kv_tokens=int(_rounded(demand.queued_kv_tokens)),
        wait_seconds=_rounded(demand.wait_seconds),
    )


def _from_proto(demand: cluster_pb2.ModelDemand) -> ModelDemand:
    return ModelDemand(
        demand.arrived_tokens,
        demand.refused_tokens,
        demand.queued_tokens,
        demand.queued_sequences,
        demand.queued_kv_tokens,
        demand.wait_seconds,
    )


def _rounded(value: float) -> float:
    """Return a value with two digits, so that it changes less often."""
    return float(f"{value:.2g}")
