"""Follow the keys that etcd holds under a prefix, across outages, for the life of a process."""

import asyncio
from contextlib import aclosing
from typing import NoReturn, Protocol

from baton.cluster.etcd.client import Etcd, EtcdError
from baton.rpc.timing.backoff import Backoff

_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 1.0


class Listener(Protocol):
    """Receives all keys, then each change; after an outage it receives all keys again."""

    def begin(self, revision: int) -> None:
        """Start a full list, as of an etcd revision."""

    def take(self, name: str, value: bytes) -> None:
        """Receive one key; `name` is what follows the prefix."""

    def end(self) -> None:
        """Finish a full list: keys known earlier and not listed no longer exist."""

    def change(self, name: str, value: bytes | None, revision: int) -> None:
        """Receive that a key was written, or deleted (None)."""


async def follow(etcd: Etcd, prefix: str, listener: Listener) -> NoReturn:
    """List and watch a prefix forever. While etcd is unavailable, the last known state stands.

    Everything is listed again after every outage: another etcd may answer then, or the same one
    without its data. The event loop runs other tasks between the pages of a list.
    """
    backoff = Backoff(_FIRST_RETRY_SECONDS, _LAST_RETRY_SECONDS)
    while True:
        try:
            revision = await _list(etcd, prefix, listener)
            async with aclosing(etcd.watch(prefix, revision + 1)) as batches:
                async for events in batches:
                    backoff.reset()
                    for event in events:
                        name = event.key.removeprefix(prefix)
                        listener.change(name, event.value, event.revision)
        except EtcdError:  # discovery logs that it is unavailable
            await asyncio.sleep(backoff.next())


async def _list(etcd: Etcd, prefix: str, listener: Listener) -> int:
    revision = 0
    async with aclosing(etcd.pages(prefix)) as pages:
        async for pairs, at in pages:
            if not revision:
                revision = at
                listener.begin(revision)
            for key, value in pairs:
                listener.take(key.removeprefix(prefix), value)
    listener.end()
    return revision
