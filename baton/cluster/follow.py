"""Follows what etcd holds under a prefix, across outages, for as long as a process lives."""

import asyncio
from contextlib import aclosing
from typing import NoReturn, Protocol

from baton.cluster.etcd.client import Etcd, EtcdError
from baton.rpc.timing.backoff import Backoff

_FIRST_RETRY_SECONDS = 0.2
_LAST_RETRY_SECONDS = 1.0


class Listener(Protocol):
    """Is told what there is, then each change; then again what there is, after an outage."""

    def begin(self, revision: int) -> None:
        """Hear that all there is follows, as of a revision of etcd."""

    def take(self, name: str, value: bytes) -> None:
        """Hear of one key; `name` is what follows the prefix."""

    def end(self) -> None:
        """Hear that this was all: what was known and not named is gone."""

    def change(self, name: str, value: bytes | None, revision: int) -> None:
        """Hear that a key was written, or deleted (None)."""


async def follow(etcd: Etcd, prefix: str, listener: Listener) -> NoReturn:
    """List and watch a prefix for ever. While etcd is away nothing is told: what was told stands.

    All is listed again after every outage: it may be another etcd that answers then, or the same
    without its data. Pages of a list are told with turns of the loop between them.
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
        except EtcdError:  # discovery says that it is away
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
