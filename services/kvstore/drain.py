"""Decides when a stopping store is no longer needed."""

import asyncio

from services.kvstore.store import Store

_LOOK_SECONDS = 0.05


async def wait_unused(store: Store, quiet_seconds: float) -> None:
    """Return after this many seconds without a read, a write, or a client joining or leaving.

    Workers of the store's host may stop with it: they write KV for others to continue with and
    leave, and those read it a moment later, through other stores that may connect only then.
    """
    last, quiet_since = (store.uses, store.streams), store.clock()
    while True:
        now, uses = store.clock(), (store.uses, store.streams)
        if store.in_use or uses != last:
            last, quiet_since = uses, now
        elif now - quiet_since >= quiet_seconds:
            return
        await asyncio.sleep(_LOOK_SECONDS)
