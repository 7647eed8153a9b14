"""Keeps the directory in sync with etcd, and restores records that etcd has lost."""

import asyncio
import secrets
from collections.abc import Iterable

from baton.cluster import keys
from baton.cluster.etcd.client import MAX_BATCH, Etcd, EtcdError
from baton.cluster.follow import follow
from baton.process.background import cancel_all, start_background
from baton.rpc.timing.backoff import Backoff
from baton.telemetry.logs import get_logger
from baton.tenancy.directory.directory import Directory
from baton.tenancy.records.tenants import KINDS, encode, parse

log = get_logger(__name__)

EPOCH = "epoch"
"""Stored next to the records: a random value, created by the first process that finds none. A
missing or different epoch means that etcd has other data. The name sorts before records', so it is
listed first."""
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.2, 5.0


class DirectoryWatch:
    """Keeps a directory up to date with the tenancy records. Lives on the event loop.

    While etcd is unavailable, all known records stay in force. If etcd returns with other data
    (another epoch, or an earlier revision), no record is removed: missing ones are written again,
    and of two copies of a record the one with more changes wins.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
    """

    def __init__(self, etcd: Etcd, cluster: str) -> None:
        self.directory = Directory()
        self._etcd = etcd
        self._prefix = keys.tenancy(cluster)
        self.synced = asyncio.Event()
        """Set once etcd was listed; never cleared."""
        self._revision = 0
        self._reached = 0
        """The etcd revision that the directory reflects."""
        self._advanced: asyncio.Future[None] | None = None
        """Resolved at the next change; exists while a caller waits for one."""
        self._epoch = b""
        self._listed_epoch = b""
        self._lost = False
        """Whether the current list is of an etcd that has lost data."""
        self._missing: dict[str, None] = {}
        """Names of known records that were not listed so far, or are older in etcd."""
        self._to_write: list[str] = []
        self._write = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "DirectoryWatch":
        self._tasks = [
            start_background(follow(self._etcd, self._prefix, self), "tenancy-watch"),
            start_background(self._keep_written(), "tenancy-restore"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_all(self._tasks)

    async def wait_synced(self) -> None:
        """Return once etcd was listed."""
        await self.synced.wait()

    async def reach(self, revision: int) -> None:
        """Return once the directory reflects a revision of etcd. The caller sets a deadline."""
        while self._reached < revision:
            if self._advanced is None:
                self._advanced = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._advanced)

    # Records in etcd.

    def begin(self, revision: int) -> None:
        self._lost = revision < self._revision
        self._revision, self._listed_epoch = revision, b""
        self._missing = dict.fromkeys(self.directory.names())

    def take(self, name: str, value: bytes) -> None:
        if name == EPOCH:
            self._listed_epoch = value
            return
        self._compare_epochs()
        if not (self._lost and self._is_older(name, value)):
            self._put(name, value)
            self._missing.pop(name, None)

    def end(self) -> None:
        self._compare_epochs()
        if self._lost and self._missing:
            log.warning("tenancy.data.lost", missing=len(self._missing))
            self._to_write = list(self._missing)
        else:
            for name in self._missing:
                self.directory.remove(name)
        if not self._listed_epoch:
            self._epoch = self._epoch or secrets.token_hex(8).encode()
        else:
            self._epoch = self._listed_epoch
        if self._to_write or not self._listed_epoch:
            self._write.set()
        self._missing = {}
        self._advance(self._revision)
        if not self.synced.is_set():
            log.info("tenancy.directory.synced", keys=len(self.directory))
            self.synced.set()

    def change(self, name: str, value: bytes | None, revision: int) -> None:
        self._revision = revision
        if name == EPOCH:
            self._epoch = value or self._epoch
        elif value is not None:
            self._put(name, value)
        else:
            try:
                self.directory.remove(name)
            except ValueError as error:
                log.warning("tenancy.record.unreadable", name=name, error=str(error))
        self._advance(revision)

    def _advance(self, revision: int) -> None:
        self._reached = revision
        if self._advanced is not None:
            self._advanced.set_result(None)
            self._advanced = None

    def _compare_epochs(self) -> None:
        if self._epoch and self._epoch != self._listed_epoch:
            self._lost = True

    def _put(self, name: str, value: bytes) -> None:
        try:
            self.directory.put(name, value)
        except ValueError as error:
            log.warning("tenancy.record.unreadable", name=name, error=str(error))

    def _is_older(self, name: str, value: bytes) -> bool:
        known = self.directory.get(name) if name in self._missing else None
        return known is not None and _version(name, value) < known.version

    # Records that etcd has lost.

    async def _keep_written(self) -> None:
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            await self._write.wait()
            self._write.clear()
            names, epoch = self._to_write, self._epoch
            try:
                await self._restore(names)
                # Last: a process that lists before it finds no epoch, and removes nothing either.
                await self._etcd.create(self._prefix + EPOCH, epoch)
            except EtcdError as error:
                log.warning("tenancy.data.not_restored", error=str(error))
                self._write.set()
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            if names:
                log.warning("tenancy.data.restored", records=len(names))
            if self._to_write is names:
                self._to_write = []

    async def _restore(self, names: Iterable[str]) -> None:
        known = ((name, self.directory.get(name)) for name in names)
        pairs = [(self._prefix + name, encode(record)) for name, record in known if record]
        for begin in range(0, len(pairs), MAX_BATCH):
            batch = pairs[begin : begin + MAX_BATCH]
            if await self._etcd.create_all(batch):
                continue
            for key, value in batch:  # other processes restore, too
                if not await self._etcd.create(key, value):
                    await self._replace_older(key, value)

    async def _replace_older(self, key: str, value: bytes) -> None:
        name = key.removeprefix(self._prefix)
        while (stored := await self._etcd.get(key)) is not None:
            newer = _version(name, stored) >= _version(name, value)
            if newer or await self._etcd.replace(key, stored, value):
                return


def _version(name: str, value: bytes) -> int:
    """Return the number of changes of a record; 0: it is not a record."""
    kind, _, ident = name.partition("/")
    try:
        return parse(KINDS[kind], ident, value).version
    except (KeyError, ValueError):
        return 0
