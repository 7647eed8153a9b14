"""Last uses of keys, to the minute: recorded in memory, written in batches."""

import asyncio
import random
from contextlib import suppress

import msgspec

from baton.cluster import keys
from baton.cluster.etcd.client import MAX_BATCH, Etcd, EtcdError
from baton.process.background import start_background
from baton.telemetry.logs import get_logger

FLUSH_SECONDS = 60.0
_EXIT_SECONDS = 2.0

log = get_logger(__name__)


class KeyUse(msgspec.Struct):
    """The record of a key's last use, at `/baton/<cluster>/uses/<id>`."""

    last_used_seconds: int
    """Seconds since the Unix epoch, a whole minute."""


class LastUses:
    """Records which keys are used, and writes them to etcd once a minute and at the end.

    Lives on the event loop. Bounded by the number of keys. While etcd is unavailable, records
    wait. Several frontends may write the last use of one key: it is accurate to the minute.

    Args:
        etcd: the connection; the caller closes it, after this.
        cluster: the cluster's name.
        seconds: approximate time between two writes.
    """

    def __init__(self, etcd: Etcd, cluster: str, seconds: float = FLUSH_SECONDS) -> None:
        self._etcd = etcd
        self._prefix = keys.key_uses(cluster)
        self._seconds = seconds
        self._used: dict[str, float] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "LastUses":
        self._task = start_background(self._keep_writing(), "key-uses")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_SECONDS):
                await self.write()

    def note(self, key_id: str, now: float) -> None:
        """Record that a key is used now, in seconds since the Unix epoch."""
        self._used[key_id] = now

    async def write(self) -> None:
        """Write the recorded uses; those that cannot be written wait for the next time."""
        used, self._used = self._used, {}
        pairs = [
            (self._prefix + key_id, msgspec.json.encode(KeyUse(int(at) // 60 * 60)))
            for key_id, at in used.items()
        ]
        for begin in range(0, len(pairs), MAX_BATCH):
            try:
                await self._etcd.put_all(pairs[begin : begin + MAX_BATCH])
            except EtcdError as error:
                log.warning("tenancy.key_uses.not_written", keys=len(pairs), error=str(error))
                self._used = used | self._used
                return

    async def _keep_writing(self) -> None:
        while True:
            await asyncio.sleep(self._seconds * (0.75 + 0.5 * random.random()))
            await self.write()
