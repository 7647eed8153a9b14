"""The view of the cluster that one process has: live instances and models, kept from etcd."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from types import TracebackType

from baton.cluster import keys
from baton.cluster.catalog import CardKey, Catalog
from baton.cluster.etcd import Compacted, Etcd, EtcdError, WatchEvent
from baton.cluster.membership import Change, Membership, Probe
from baton.cluster.probe import ProbeFunction, answers
from baton.cluster.subscription import Subscription
from baton.internal.v1.cluster_pb2 import Instance, ModelCard, Role
from baton.telemetry.logs import get_logger

log = get_logger(__name__)

RELIST_SECONDS = 30.0
"""Everything is listed again this often, whatever the watch says."""
RECONNECT_LIST_SECONDS = 3.0
"""Within this, after etcd was away: the watch resumes at once, but it may be another etcd now."""
FIRST_LIST_SECONDS = 2.0
"""Entering waits this long for the first list, then goes on with an empty view."""
RETRY_SECONDS = 0.2
MAX_LOGGED = 16
"""Changes that are logged one by one when they come together; of more, their number is."""
MAX_PROBES = 64
"""Probes that run at once; more wait their turn."""


class Discovery:
    """Live instances and models of a cluster, seen within a moment of their coming and going.

    While etcd is away the view stays as it is, and suspects are still probed.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        probe: asks an instance whether it lives.
        relist_seconds: how often to list everything again.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        probe: ProbeFunction = answers,
        relist_seconds: float = RELIST_SECONDS,
    ) -> None:
        self._etcd = etcd
        self._cluster = cluster
        self._probe = probe
        self._relist_seconds = relist_seconds
        self._membership = Membership()
        self._catalog = Catalog()
        self._records: dict[str, tuple[bytes, Instance | ModelCard]] = {}
        self._subscriptions: set[Subscription] = set()
        self._synced = asyncio.Event()
        self._probe_news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._from_revision = 0
        self._relist_at = 0.0
        self._etcd_away = False

    async def __aenter__(self) -> "Discovery":
        for name, loop in (("follow", self._follow()), ("probe", self._probe_suspects())):
            task = asyncio.create_task(loop, name=f"discovery-{name}")
            task.add_done_callback(_log_failure)
            self._tasks.append(task)
        with suppress(TimeoutError):  # etcd is away, as _follow says in the log
            await self.wait_synced(FIRST_LIST_SECONDS)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    @property
    def instances(self) -> Mapping[str, Instance]:
        """Instances alive now, by id, suspects included; a live view."""
        return self._membership.alive

    @property
    def models(self) -> Mapping[CardKey, ModelCard]:
        """Model cards by (name, layout id in hex); a live view."""
        return self._catalog.cards

    def by_role(self, role: Role.ValueType) -> list[Instance]:
        """Instances alive now that have this role."""
        return self._membership.by_role(role)

    @property
    def synced(self) -> bool:
        """Whether etcd was listed at least once."""
        return self._synced.is_set()

    async def wait_synced(self, timeout: float) -> None:
        """Wait until etcd was listed once.

        Raises:
            TimeoutError: it was not within `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            await self._synced.wait()

    def suspect(self, instance_id: str) -> None:
        """Say that a connection to an instance broke: it is probed now, and leaves if it fails."""
        self._membership.suspect(instance_id, _now())
        self._probe_news.set()

    async def changes(self) -> AsyncGenerator[Change, None]:
        """What changes, beginning with an `up` for each instance alive now; never ends.

        A slow reader is told less often, never later: changes that it has not read are joined, so
        that what is kept for it is bounded by the number of instances.
        """
        subscription = Subscription(self.instances, models=bool(self.models))
        self._subscriptions.add(subscription)
        try:
            while True:
                for change in await subscription.read():
                    yield change
        finally:
            self._subscriptions.discard(subscription)

    async def _follow(self) -> None:
        while True:
            try:
                await self._list_if_due()
                await self._watch()
            except Compacted as error:
                log.info("listing the cluster again", reason=str(error))
                self._from_revision = 0
                await asyncio.sleep(RETRY_SECONDS * random.random())
            except EtcdError as error:
                if not self._etcd_away:
                    self._etcd_away = True
                    log.warning("etcd is away, keeping the view", error=str(error))
                soon = _now() + RECONNECT_LIST_SECONDS * random.random()
                self._relist_at = min(self._relist_at, soon)
                await asyncio.sleep(RETRY_SECONDS * (0.5 + random.random()))

    async def _list_if_due(self) -> None:
        if self._from_revision and _now() < self._relist_at:
            return
        start, end = keys.members_range(self._cluster)
        pairs, revision = await self._etcd.list(start, end)
        self._apply_list(pairs)
        self._from_revision = revision + 1
        self._relist_at = _now() + self._relist_seconds * (0.9 + 0.2 * random.random())
        self._synced.set()
        self._etcd_is_back()

    async def _watch(self) -> None:
        """Follow events until it is time to list again."""
        start, end = keys.members_range(self._cluster)
        with suppress(TimeoutError):
            async with (
                asyncio.timeout_at(self._relist_at),
                aclosing(self._etcd.watch(start, self._from_revision, end)) as batches,
            ):
                async for events in batches:
                    self._etcd_is_back()
                    for event in events:
                        self._apply_event(event)
                        self._from_revision = event.revision + 1

    def _etcd_is_back(self) -> None:
        if self._etcd_away:
            self._etcd_away = False
            log.info("etcd is back")

    def _apply_list(self, pairs: list[tuple[str, bytes]]) -> None:
        held = {key for key, _ in pairs}
        self._records = {key: known for key, known in self._records.items() if key in held}
        instances, cards = [], []
        for key, value in pairs:
            match self._read(key, value):
                case Instance() as instance:
                    instances.append(instance)
                case ModelCard() as card:
                    cards.append((self._card_key(key), card))
        models_changed = self._catalog.listed(cards)
        self._tell(self._membership.listed(instances, _now()), models_changed)

    def _apply_event(self, event: WatchEvent) -> None:
        if event.value is None:
            self._records.pop(event.key, None)
            prefix = keys.instances(self._cluster)
            if event.key.startswith(prefix):
                self._tell(self._membership.removed(event.key.removeprefix(prefix), _now()))
            elif event.key.startswith(keys.models(self._cluster)):
                self._tell([], self._catalog.removed(self._card_key(event.key)))
            return
        match self._read(event.key, event.value):
            case Instance() as instance:
                self._tell(self._membership.put(instance, _now()))
            case ModelCard() as card:
                self._tell([], self._catalog.put(self._card_key(event.key), card))

    def _read(self, key: str, value: bytes) -> Instance | ModelCard | None:
        """The record at a key; the same object as before where the value is the same."""
        known = self._records.get(key)
        if known is not None and known[0] == value:
            return known[1]
        record: Instance | ModelCard
        try:
            if key.startswith(keys.instances(self._cluster)):
                record = keys.decode(Instance, value)
                # The key decides who it is: removals know nothing else.
                record.id = key.removeprefix(keys.instances(self._cluster))
            elif key.startswith(keys.models(self._cluster)):
                record = keys.decode(ModelCard, value)
            else:
                return None
        except ValueError as error:
            log.warning("unreadable record skipped", key=key, error=str(error))
            return None
        self._records[key] = (value, record)
        return record

    def _card_key(self, key: str) -> CardKey:
        name, _, layout_id = key.removeprefix(keys.models(self._cluster)).rpartition("/")
        return name, layout_id

    def _tell(self, changes: list[Change], models_changed: bool = False) -> None:
        if len(changes) > MAX_LOGGED:
            log.info("many instances changed", changes=len(changes), alive=len(self.instances))
        for change in changes:
            if len(changes) <= MAX_LOGGED:
                log.info(
                    f"instance {change.kind}",
                    instance_id=change.instance.id,
                    role=_role_name(change.instance.role),
                    address=change.instance.address,
                )
            if change.kind == "up":
                self._catalog.joined(change.instance)
            elif change.kind == "down":
                models_changed = self._catalog.left(change.instance) or models_changed
        if models_changed:
            changes = [Change("models", Instance()), *changes]
        for change in changes:
            for subscription in self._subscriptions:
                subscription.touch(change)
        self._probe_news.set()

    async def _probe_suspects(self) -> None:
        running = 0

        async def run(probe: Probe) -> None:
            nonlocal running
            answered = await self._probe(probe.address, probe.incarnation)
            running -= 1
            self._tell(self._membership.probed(probe, answered, _now()))

        async with asyncio.TaskGroup() as group:
            while True:
                self._probe_news.clear()
                for probe in self._membership.probes(_now(), MAX_PROBES - running):
                    running += 1
                    group.create_task(run(probe))
                at = self._membership.next_probe() if running < MAX_PROBES else None
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(at):
                        await self._probe_news.wait()


def _role_name(role: Role.ValueType) -> str:
    return Role.Name(role) if role in Role.values() else str(role)  # of a later release


def _now() -> float:
    return asyncio.get_running_loop().time()


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("discovery failed", task=task.get_name(), exc_info=error)
