"""Evict KV from the engine's memory once it has been idle for a while and is in the store."""

import asyncio
from collections.abc import Iterable, Set

from baton.engine.base import Engine
from baton.engine.events import CachedBlock
from baton.errors import BatonError
from baton.kv.client.client import KvStoreClient, StoreUnavailableError
from baton.kv.cuts import cut_rules
from baton.kv.layout import Layout
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.engine_loop import EngineLoop
from baton.worker.kv.idle_cuts import found_in_store

LOOKUP_KEYS = 4096
"""Keys per lookup: a millisecond of the store's time."""
PERIODS_PER_IDLE_TIME = 4
"""Checks per idle time: blocks are evicted late by at most this fraction of it."""
MAX_PERIOD_SECONDS = 10.0

log = get_logger(__name__)


async def evict_idle_blocks(
    engine: EngineLoop, store: KvStoreClient, layout: Layout, idle_seconds: float
) -> None:
    """Evict blocks from the prefix cache after the given idle time, until cancelled.

    While the store is unavailable nothing is evicted, because no block is known to be held
    elsewhere.
    """
    while True:
        await asyncio.sleep(min(MAX_PERIOD_SECONDS, idle_seconds / PERIODS_PER_IDLE_TIME))
        try:
            evicted = await evict_idle_once(engine, store, layout, idle_seconds)
        except (StoreUnavailableError, BatonError) as error:
            log.info("kv.idle.skipped", error=str(error))
            continue
        except Exception:
            log.exception("kv.idle.failed")  # idle blocks stay, and the worker keeps serving
            continue
        if evicted:
            metrics.BLOCKS_IDLE.inc(evicted)
            log.info("kv.idle.evicted", blocks=evicted)


async def evict_idle_once(
    engine: EngineLoop, store: KvStoreClient, layout: Layout, idle_seconds: float
) -> int:
    """Evict blocks that are idle for the given time and in the store; return how many.

    The store may evict a block a moment later: it is then recomputed like any lost block.

    Raises:
        StoreUnavailableError: the store cannot be reached; nothing was evicted.
        BatonError: the store rejected the request; nothing was evicted.
    """

    def find_idle(own: Engine) -> list[CachedBlock]:
        return own.idle_blocks(idle_seconds)

    idle = await engine.call(find_idle)
    rules = cut_rules(layout)
    held: list[set[bytes]] = [set() for _ in rules.groups]
    for first in range(0, len(idle), LOOKUP_KEYS):
        keys = [block.key for block in idle[first : first + LOOKUP_KEYS]]
        for group, keys_held in enumerate(held):
            found = await store.lookup(keys, layout.layout_id, group)
            keys_held.update(key for key, here in zip(keys, found, strict=True) if here)
    elsewhere = found_in_store(idle, held, rules) if layout.groups else held[0]
    evictable = evictable_keys(idle, elsewhere)
    if not evictable:
        return 0
    # Blocks that were used meanwhile are no longer idle, and stay.
    return await engine.call(lambda own: own.evict_blocks(evictable, idle_seconds))


def evictable_keys(idle: Iterable[CachedBlock], held: Set[bytes]) -> list[bytes]:
    """Return the keys of the blocks whose KV can still be found after they are evicted.

    A block that is held nowhere else stays, and so does the block that it continues: the engine
    looks up a chain from its beginning, and would never request its end from the store.

    Args:
        idle: idle blocks, each before the one that it continues.
        held: keys of the blocks that the store holds.
    """
    evictable = []
    needed = set()
    for block in idle:
        if block.key in held and block.key not in needed:
            evictable.append(block.key)
        else:
            needed.add(block.previous)
    return evictable
