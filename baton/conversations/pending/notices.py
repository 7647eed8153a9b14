"""Tells all frontends of a cluster what waits at one of them."""

import asyncio
import secrets
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from baton.cluster import keys
from baton.cluster.etcd.client import MAX_BATCH, Etcd, EtcdError
from baton.cluster.follow import follow
from baton.process.background import cancel_all, start_background
from baton.rpc.timing.backoff import Backoff
from baton.telemetry.logs import get_logger

LEASE_SECONDS = 300
"""How long others know what a frontend keeps that died."""
WRITE_SECONDS = 0.5
"""How long an end waits for etcd."""
_RENEW_SECONDS = LEASE_SECONDS / 5
_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS = 0.2, 5.0

log = get_logger(__name__)


class PendingNotices:
    """Keys in etcd for what waits on this process's disk, and those of other processes.

    A key has what a later request may need and the record that has it, both in hexadecimal digits;
    it is under a lease of the process. Lives on the event loop; entering starts it. While etcd is
    away, the last known keys of other processes stand.

    Args:
        etcd: the connection.
        cluster: the cluster's name.
    """

    def __init__(self, etcd: Etcd, cluster: str) -> None:
        self._etcd = etcd
        self._prefix = keys.pending(cluster)
        self._process = secrets.token_bytes(8)
        self._lease = 0
        self._own: set[str] = set()
        """Names of keys that this process wrote."""
        self._done: dict[str, None] = {}
        """Names of keys that are to be deleted, in order."""
        self._others: dict[str, set[str]] = {}
        self._listed: dict[str, set[str]] = {}
        self._changed = asyncio.Event()
        self._some_done = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "PendingNotices":
        self._tasks = [
            start_background(follow(self._etcd, self._prefix, self), "follow pending turns"),
            start_background(self._delete_done(), "delete notices"),
            start_background(self._renew(), "renew notices"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        await cancel_all(self._tasks)
        with suppress(EtcdError, TimeoutError):  # the lease ends by itself
            async with asyncio.timeout(WRITE_SECONDS):
                while self._done:
                    await self._delete()

    def knows(self, needed: str) -> bool:
        """Return whether another process keeps what has an id."""
        return needed in self._others

    async def wait_changed(self) -> None:
        """Return once other processes' keys have changed."""
        await self._changed.wait()

    async def add(self, record: str, needed: Iterable[str]) -> None:
        """Tell others of a record; return once etcd knows, or does not respond."""
        names = [f"{one}/{record}" for one in needed]
        self._own.update(names)
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._put(names)
        except (EtcdError, TimeoutError) as error:
            log.warning("state.notice.not_written", record=record, error=str(error))

    def remove(self, record: str, needed: Iterable[str]) -> None:
        """Have the keys of a record deleted, soon, whichever process wrote them."""
        names = [f"{one}/{record}" for one in needed]
        self._own.difference_update(names)
        self._done.update(dict.fromkeys(names))
        self._some_done.set()

    def begin(self, revision: int) -> None:  # noqa: ARG002
        """Start a list, as a `Listener`."""
        self._listed = {}

    def take(self, name: str, value: bytes) -> None:
        self._take(self._listed, name, value)

    def end(self) -> None:
        """Finish a list, as a `Listener`."""
        self._others = self._listed
        self._pulse()

    def change(self, name: str, value: bytes | None, revision: int) -> None:  # noqa: ARG002
        if value is not None:
            self._take(self._others, name, value)
            return
        needed, _, record = name.partition("/")
        records = self._others.get(needed)
        if records is not None:
            records.discard(record)
            if not records:
                del self._others[needed]
                self._pulse()

    def _take(self, known: dict[str, set[str]], name: str, value: bytes) -> None:
        if value != self._process:
            needed, _, record = name.partition("/")
            known.setdefault(needed, set()).add(record)

    def _pulse(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _put(self, names: list[str]) -> None:
        if not self._lease:
            self._lease = await self._etcd.grant(LEASE_SECONDS)
        for name in names:
            await self._etcd.put(self._prefix + name, self._process, self._lease)

    async def _delete_done(self) -> None:
        """Delete keys as records are stored. Never returns."""
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            await self._some_done.wait()
            self._some_done.clear()
            while self._done:
                try:
                    await self._delete()
                    backoff.reset()
                except EtcdError as error:
                    count = len(self._done)
                    log.warning("state.notice.not_deleted", count=count, error=str(error))
                    await asyncio.sleep(backoff.next())

    async def _delete(self) -> None:
        names = list(islice(self._done, MAX_BATCH))
        await self._etcd.replace_all((), (), [self._prefix + name for name in names])
        for name in names:
            self._done.pop(name, None)

    async def _renew(self) -> None:
        """Renew the lease while keys need it, and write them again if it ended. Never returns."""
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            try:
                if not self._own:
                    self._lease = 0  # it ends
                elif not self._lease or not await self._etcd.keep_alive(self._lease):
                    self._lease = 0
                    await self._put(list(self._own))
            except EtcdError as error:
                log.warning("state.notice.not_renewed", error=str(error))
