"""When a store that stops is not needed any more."""

import asyncio

from services.kvstore.store import Store

_LOOK_SECONDS = 0.05


async def wait_unused(store: Store, quiet_seconds: float) -> None:
    """Return once nothing was read or written, and nobody came or went, for so long.

    Workers of the store's host may stop with it: they write what others go on with and leave, and
    those read it a moment later, through stores of their own that may only connect then.
    """
    last, quiet_since = (store.uses, store.streams), store.clock()
    while True:
        now, uses = store.clock(), (store.uses, store.streams)
        if store.in_use or uses != last:
            last, quiet_since = uses, now
        elif now - quiet_since >= quiet_seconds:
            return
        await asyncio.sleep(_LOOK_SECONDS)
