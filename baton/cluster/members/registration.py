"""Keep the records of a process in etcd for as long as it lives."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.internal.v1.cluster_pb2 import Instance, ModelCard
from baton.process.background import start_background
from baton.rpc.protocol import VERSION
from baton.rpc.timing.backoff import Backoff
from baton.settings import EtcdSettings
from baton.telemetry.logs import get_logger
from baton.telemetry.metrics import Gauge
from baton.version import full_version

log = get_logger(__name__)

RETRY_SECONDS = 0.2
BUILD_INFO = Gauge(
    "baton_build_info",
    "Always 1; labels: release and commit of the process, and its protocol version.",
    ("version", "protocol"),
)


class Registration:
    """An instance's record and its model cards, under a lease that is renewed, and replaced if
    lost.

    The record contains the version of Baton that wrote it. An etcd outage neither blocks nor fails
    the process: records are written once it is over.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        instance: the record; a copy is kept.
        cards: the models that this instance serves.
        settings: lease TTL, after which etcd drops the records if it is not renewed; and how long
            entering, updating and leaving wait for etcd.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        instance: Instance,
        cards: Sequence[ModelCard] = (),
        settings: EtcdSettings = EtcdSettings(),
    ) -> None:
        self._etcd = etcd
        self._key = keys.instance(cluster, instance.id)
        self._instance = Instance()
        self._instance.CopyFrom(instance)
        self._instance.version = full_version()
        self._cards = {
            keys.model(cluster, card.name, keys.model_variant(card)): card for card in cards
        }
        self._settings = settings
        self._ttl = settings.lease_seconds
        self._lease = 0
        self._version = 1
        self._written = 0
        self._published = False
        self._took_id = False
        self._replaced = False
        self._wakeup = asyncio.Event()
        self._progress = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._etcd_unavailable = False

    async def __aenter__(self) -> "Registration":
        BUILD_INFO.labels(self._instance.version, str(VERSION)).set(1)
        self._task = start_background(self._keep_registered(), "registration")
        await self._wait_written()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if not self._lease:
            return
        try:
            async with asyncio.timeout(self._settings.exit_seconds):
                # The deletion of a draining record signals a clean exit instead of a failure.
                self._instance.draining = True
                await self._write_record()
                await self._etcd.revoke(self._lease)
        except (EtcdError, TimeoutError) as failure:
            log.warning("cluster.registration.not_revoked", error=str(failure), ttl=self._ttl)

    @property
    def registered(self) -> bool:
        """Whether etcd holds the current record, as far as this process knows."""
        return self._written == self._version and self._lease != 0

    async def wait_registered(self) -> None:
        """Return once etcd holds the record."""
        async with self._progress:
            await self._progress.wait_for(lambda: self.registered)

    async def update(self, **fields: Any) -> None:
        """Change fields of the record, for example `update(draining=True)`.

        Return once it is written, or after a second if etcd is unavailable; it is then written
        later.
        """
        name: Any
        for name in fields:
            self._instance.ClearField(name)
        self._instance.MergeFrom(Instance(**fields))
        self._version += 1
        self._wakeup.set()
        await self._wait_written()

    async def _wait_written(self) -> None:
        with suppress(TimeoutError):  # _keep_registered logs that etcd is unavailable
            async with asyncio.timeout(self._settings.enter_seconds), self._progress:
                await self._progress.wait_for(lambda: self.registered)

    async def _keep_registered(self) -> None:
        backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS)
        while True:
            try:
                await self._renew()
            except EtcdError as error:
                if not self._etcd_unavailable:
                    self._etcd_unavailable = True
                    log.warning("cluster.registration.failed", error=str(error))
                await asyncio.sleep(backoff.next())
                continue
            if self._etcd_unavailable:
                self._etcd_unavailable = False
                log.info("cluster.registration.recovered")
            with suppress(TimeoutError):
                async with asyncio.timeout(self._ttl / 3):
                    await self._wakeup.wait()

    async def _renew(self) -> None:
        """Renew the lease, or take one, and write the records missing under it."""
        self._wakeup.clear()
        if self._lease and await self._etcd.keep_alive(self._lease) <= 0:
            log.warning("cluster.lease.lost", etcd_key=self._key)
            self._lease = 0
        if not self._lease:
            self._written, self._published = 0, False
            self._lease = await self._etcd.grant(self._ttl)
        if not self._published:
            # Cards before the instance: its models are in view once it is.
            for key, card in self._cards.items():
                await self._publish(key, card)
            self._published = True
        version = self._version
        replaced = not await self._write_record()
        if replaced and not self._replaced:
            log.warning("cluster.instance_id.taken", etcd_key=self._key)
        self._replaced = replaced
        if self._written != version:
            async with self._progress:
                self._written = version
                self._progress.notify_all()
        for key, card in self._cards.items():
            # The worker that published it last may have left, and the card with its lease.
            await self._etcd.create(key, keys.encode(card), self._lease)

    async def _write_record(self) -> bool:
        """Write the current record; return False if a later process has taken the ID.

        The first write takes the ID over from an earlier process. After that, a process that
        started later with the same ID keeps it.
        """
        value = keys.encode(self._instance)
        if not self._took_id:
            await self._etcd.put(self._key, value, self._lease)
            self._took_id = True
            return True
        stored = await self._etcd.get(self._key)
        if stored is None:
            return await self._etcd.create(self._key, value, self._lease)
        if stored == value:
            return True
        if not self._is_ours(stored):
            return False
        return await self._etcd.replace(self._key, stored, value, self._lease)

    def _is_ours(self, stored: bytes) -> bool:
        try:
            return keys.decode(Instance, stored).incarnation == self._instance.incarnation
        except ValueError:
            log.warning("cluster.record.unreadable", etcd_key=self._key)
            return True

    async def _publish(self, key: str, card: ModelCard) -> None:
        if not card.created_seconds:
            known = await self._etcd.get(key)
            try:
                seconds = keys.decode(ModelCard, known).created_seconds if known else 0
            except ValueError:
                log.warning("cluster.record.unreadable", etcd_key=key)
                seconds = 0
            card.created_seconds = seconds or int(time.time())
        await self._etcd.put(key, keys.encode(card), self._lease)
