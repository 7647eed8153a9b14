"""One process's view of the cluster: live instances and models, kept up to date from etcd."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from functools import partial

from baton.cluster import keys
from baton.cluster.catalog import CardKey, Catalog
from baton.cluster.etcd.client import Compacted, Etcd, EtcdError, WatchEvent
from baton.cluster.members.membership import Membership, MembershipChange, health_address
from baton.cluster.members.probe import LivenessProbe, Prober, liveness
from baton.cluster.members.subscription import ChangeSubscription
from baton.cluster.records import RecordCache
from baton.internal.v1.cluster_pb2 import Instance, KeptModel, ModelCard, Role
from baton.process.background import start_background
from baton.rpc.timing.backoff import Backoff
from baton.settings import EtcdSettings
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

RECONNECT_LIST_SECONDS = 3.0
"""Delay before listing again after an etcd outage: the watch resumes immediately, but the server
may be a different etcd."""
FIRST_LIST_SECONDS = 2.0
"""Entering waits this long for the first list, then continues with an empty view."""
RETRY_SECONDS = 0.2
MAX_LOGGED = 16
"""Changes of one batch that are logged one by one; of a larger batch only the number is logged."""


class Discovery:
    """Live instances and models of a cluster, updated within moments of a change.

    During an etcd outage the view stays as it is, and unreachable instances are still probed.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        settings: how often to list everything again, and how to probe.
        probe: returns whether an instance is alive; None: a gRPC health check.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        settings: EtcdSettings = EtcdSettings(),
        probe: LivenessProbe | None = None,
    ) -> None:
        self._etcd = etcd
        self._range = keys.members_range(cluster)
        self._relist_seconds = settings.relist_seconds
        self._membership = Membership(settings.reprobe_seconds)
        if probe is None:
            probe = partial(liveness, seconds=settings.probe_seconds)
        self._probe = probe
        self._prober = Prober(self._membership, probe, self._publish)
        self._catalog = Catalog()
        self._records = RecordCache(cluster)
        self._subscriptions: set[ChangeSubscription] = set()
        self._synced = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._from_revision = 0
        self._relist_at = 0.0
        self._etcd_unavailable = False
        self.etcd_recovered = asyncio.Event()
        """Set when etcd responds again after an outage, with its data or without; the owner clears
        it."""

    async def __aenter__(self) -> "Discovery":
        self._tasks = [
            start_background(self._watch_etcd(), "discovery-watch"),
            start_background(self._prober.run(), "discovery-probe"),
        ]
        with suppress(TimeoutError):  # _watch_etcd logs that etcd is unavailable
            await self.wait_synced(FIRST_LIST_SECONDS)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Instances alive now, by ID, including those being probed; a live view."""
        return self._membership.alive

    @property
    def models(self) -> Mapping[CardKey, ModelCard]:
        """Model cards by name and variant, those of kept models included; a live view."""
        return self._catalog.cards

    @property
    def kept(self) -> Mapping[str, KeptModel]:
        """Models that stay known without workers, by name; a live view."""
        return self._catalog.kept

    def by_role(self, role: Role.ValueType) -> list[Instance]:
        """Return the live instances that have this role."""
        return self._membership.by_role(role)

    @property
    def synced(self) -> bool:
        """Whether etcd was listed at least once."""
        return self._synced.is_set()

    async def wait_synced(self, timeout: float) -> None:
        """Wait until etcd was listed once.

        Raises:
            TimeoutError: it was not listed within `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self._synced.wait()

    def report_unreachable(self, instance_id: str) -> None:
        """Probe an instance whose connection broke; it leaves the view if the probe fails too."""
        self._membership.on_unreachable(instance_id, _now())
        self._prober.wake()

    async def has_died(self, instance_id: str, incarnation: str) -> bool:
        """Return whether a process is certainly dead after a connection to it broke.

        It is dead if another process has its ID, or if it rejects two probes. A process that does
        not respond, or that left, may be alive.
        """
        instance = self._membership.get(instance_id)
        if instance is None:
            return False
        for _ in range(2):
            if instance.incarnation != incarnation:
                return True
            if await self._probe(health_address(instance), incarnation) != "dead":
                return False
            # It may leave meanwhile, because others find it dead as well.
            instance = self._membership.get(instance_id) or instance
        return True

    async def changes(self) -> AsyncGenerator[MembershipChange, None]:
        """Yield changes, beginning with an `up` for each live instance; never ends.

        Changes that a slow reader has not read yet are merged, so that memory per reader is bounded
        by the number of instances.
        """
        subscription = ChangeSubscription(self.instances, models=bool(self.models))
        self._subscriptions.add(subscription)
        try:
            while True:
                for change in await subscription.read():
                    yield change
        finally:
            self._subscriptions.discard(subscription)

    async def _watch_etcd(self) -> None:
        backoff = Backoff(RETRY_SECONDS, RETRY_SECONDS)
        while True:
            try:
                await self._list_if_due()
                await self._watch()
            except Compacted as error:
                log.info("cluster.watch.compacted", reason=str(error))
                self._from_revision = 0
                await asyncio.sleep(backoff.next())
            except EtcdError as error:
                if not self._etcd_unavailable:
                    self._etcd_unavailable = True
                    log.warning("cluster.etcd.unavailable", error=str(error))
                soon = _now() + RECONNECT_LIST_SECONDS * random.random()
                self._relist_at = min(self._relist_at, soon)
                await asyncio.sleep(backoff.next())

    async def _list_if_due(self) -> None:
        if self._from_revision and _now() < self._relist_at:
            return
        pairs, revision = await self._etcd.list(*self._range)
        self._apply_list(pairs)
        self._from_revision = revision + 1
        self._relist_at = _now() + self._relist_seconds * (0.9 + 0.2 * random.random())
        self._synced.set()
        self._etcd_answered()

    async def _watch(self) -> None:
        """Apply events until it is time to list again."""
        start, end = self._range
        with suppress(TimeoutError):
            async with (
                asyncio.timeout_at(self._relist_at),
                aclosing(self._etcd.watch(start, self._from_revision, end)) as batches,
            ):
                async for events in batches:
                    self._etcd_answered()
                    for event in events:
                        self._apply_event(event)
                        self._from_revision = event.revision + 1

    def _etcd_answered(self) -> None:
        if self._etcd_unavailable:
            self._etcd_unavailable = False
            log.info("cluster.etcd.recovered")
            self.etcd_recovered.set()

    def _apply_list(self, pairs: list[tuple[str, bytes]]) -> None:
        self._records.retain({key for key, _ in pairs})
        instances, cards, kept = [], [], {}
        for key, value in pairs:
            record = self._records.decode(key, value)
            if isinstance(record, Instance):
                instances.append(record)
            elif isinstance(record, KeptModel):
                kept[self._records.kept_name(key) or ""] = record
            elif record is not None and (card_key := self._records.card_key(key)):
                cards.append((card_key, record))
        models_changed = self._catalog.on_list(cards, kept)
        self._publish(self._membership.on_list(instances, _now()), models_changed)

    def _apply_event(self, event: WatchEvent) -> None:
        instance_id = self._records.instance_id(event.key)
        card_key = self._records.card_key(event.key)
        kept_name = self._records.kept_name(event.key)
        if event.value is None:
            self._records.delete(event.key)
            if instance_id is not None:
                self._publish(self._membership.on_delete(instance_id, _now()))
            elif card_key is not None:
                self._publish([], self._catalog.on_delete(card_key))
            elif kept_name is not None:
                self._publish([], self._catalog.on_kept(kept_name, None))
            return
        record = self._records.decode(event.key, event.value)
        if isinstance(record, Instance):
            self._publish(self._membership.on_put(record, _now()))
        elif isinstance(record, KeptModel):
            self._publish([], self._catalog.on_kept(kept_name or "", record))
        elif record is not None and card_key is not None:
            self._publish([], self._catalog.on_put(card_key, record))

    def _publish(self, changes: list[MembershipChange], models_changed: bool = False) -> None:
        if len(changes) > MAX_LOGGED:
            log.info("cluster.instances.changed", count=len(changes), alive=len(self.instances))
        for change in changes:
            if len(changes) <= MAX_LOGGED:
                log.info(
                    f"cluster.instance.{change.kind}",
                    peer=change.instance.id,
                    role=_role_name(change.instance.role),
                    address=change.instance.address,
                )
            if change.kind == "up":
                self._catalog.on_instance_up(change.instance)
            elif change.kind == "down":
                models_changed = self._catalog.on_instance_down(change.instance) or models_changed
        if models_changed:
            changes = [MembershipChange("models", Instance()), *changes]
        for change in changes:
            for subscription in self._subscriptions:
                subscription.notify(change)
        self._prober.wake()


def _role_name(role: Role.ValueType) -> str:
    return Role.Name(role) if role in Role.values() else str(role)  # of a later release


def _now() -> float:
    return asyncio.get_running_loop().time()
