"""Requests that every frontend of a cluster rejects, by digest."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from baton.cluster import keys
from baton.cluster.etcd.client import Etcd, EtcdError
from baton.process.background import start_background
from baton.rpc.timing.backoff import Backoff
from baton.telemetry.logs import get_logger

MAX_UNWRITTEN = 64
"""Digests that wait for etcd; beyond this the oldest is dropped."""
_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 5.0

log = get_logger(__name__)


class SharedRefusals:
    """Shares the digests of rejected requests between frontends: in etcd, each under a lease.

    Lives on the event loop. While etcd is unavailable, the last known digests stay in force, and
    new ones are written afterwards. Deleting a key lifts the rejection everywhere.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        seconds: how long a rejection lasts.
        on_refused: receives each digest that appears in etcd.
        on_lifted: receives each digest that is removed from etcd.
    """

    def __init__(
        self,
        etcd: Etcd,
        cluster: str,
        seconds: int,
        on_refused: Callable[[bytes], None],
        on_lifted: Callable[[bytes], None],
    ) -> None:
        self._etcd = etcd
        self._prefix = keys.refused(cluster)
        self._seconds = seconds
        self._on_refused = on_refused
        self._on_lifted = on_lifted
        self._unwritten: dict[bytes, None] = {}
        self._added = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "SharedRefusals":
        self._tasks = [
            start_background(self._watch(), "refusals-watch"),
            start_background(self._write(), "refusals-write"),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def add(self, digest: bytes) -> None:
        """Have every frontend reject a request, soon."""
        if len(self._unwritten) >= MAX_UNWRITTEN:
            del self._unwritten[next(iter(self._unwritten))]
        self._unwritten[digest] = None
        self._added.set()

    async def _write(self) -> None:
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            await self._added.wait()
            self._added.clear()
            while self._unwritten:
                digest = next(iter(self._unwritten))
                try:
                    lease = await self._etcd.grant(self._seconds)
                    await self._etcd.put(self._prefix + digest.hex(), b"", lease)
                except EtcdError as error:
                    log.warning("cluster.refusal.not_written", error=str(error))
                    await asyncio.sleep(backoff.next())
                else:
                    backoff.reset()
                    self._unwritten.pop(digest, None)

    async def _watch(self) -> None:
        backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
        while True:
            try:
                pairs, revision = await self._etcd.list(self._prefix)
                for key, _ in pairs:
                    self._tell(key, self._on_refused)
                async with aclosing(self._etcd.watch(self._prefix, revision + 1)) as batches:
                    async for events in batches:
                        backoff.reset()
                        for event in events:
                            lifted = event.value is None
                            self._tell(event.key, self._on_lifted if lifted else self._on_refused)
            except EtcdError:  # discovery logs that it is unavailable
                await asyncio.sleep(backoff.next())

    def _tell(self, key: str, listener: Callable[[bytes], None]) -> None:
        try:
            digest = bytes.fromhex(key.removeprefix(self._prefix))
        except ValueError:
            log.warning("cluster.record.unreadable", etcd_key=key)
        else:
            listener(digest)
