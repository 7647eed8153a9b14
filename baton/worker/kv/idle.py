"""KV that no request used for a while leaves the engine's memory if the store has it too."""

import asyncio
from collections.abc import Iterable, Set

from baton.engine.base import Engine
from baton.engine.events import CachedBlock
from baton.errors import BatonError
from baton.kv.client.client import KvStoreClient, StoreUnavailableError
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.engine_loop import EngineLoop

LOOKUP_KEYS = 4096
"""Asked for at once: a millisecond of the store's time."""
PERIODS_PER_IDLE_TIME = 4
"""Blocks are looked at so often within the idle time: what is evicted is at most this part late."""
MAX_PERIOD_SECONDS = 10.0

log = get_logger(__name__)


async def evict_idle_blocks(
    engine: EngineLoop, store: KvStoreClient, layout_id: bytes, idle_seconds: float
) -> None:
    """Evict blocks that were idle for so long from the prefix cache, until cancelled.

    Everything stays while the store is unavailable: then nothing is known to be held elsewhere.
    """
    while True:
        await asyncio.sleep(min(MAX_PERIOD_SECONDS, idle_seconds / PERIODS_PER_IDLE_TIME))
        try:
            evicted = await evict_idle_once(engine, store, layout_id, idle_seconds)
        except (StoreUnavailableError, BatonError) as error:
            log.info("kv.idle.skipped", error=str(error))
            continue
        except Exception:
            log.exception("kv.idle.failed")  # what is idle stays, and the worker serves on
            continue
        if evicted:
            metrics.BLOCKS_IDLE.inc(evicted)
            log.info("kv.idle.evicted", blocks=evicted)


async def evict_idle_once(
    engine: EngineLoop, store: KvStoreClient, layout_id: bytes, idle_seconds: float
) -> int:
    """Evict what was idle for so long and is in the store; return how many blocks.

    The store may lose a block a moment later: it is computed again then, as any that is lost.

    Raises:
        StoreUnavailableError: the store cannot be reached; nothing was evicted.
        BatonError: the store refused; nothing was evicted.
    """

    def find_idle(own: Engine) -> list[CachedBlock]:
        return own.idle_blocks(idle_seconds)

    idle = await engine.call(find_idle)
    held: set[bytes] = set()
    for first in range(0, len(idle), LOOKUP_KEYS):
        keys = [block.key for block in idle[first : first + LOOKUP_KEYS]]
        found = await store.lookup(keys, layout_id)
        held.update(key for key, here in zip(keys, found, strict=True) if here)
    evictable = evictable_keys(idle, held)
    if not evictable:
        return 0
    # What was used meanwhile is idle no more, and stays.
    return await engine.call(lambda own: own.evict_blocks(evictable, idle_seconds))


def evictable_keys(idle: Iterable[CachedBlock], held: Set[bytes]) -> list[bytes]:
    """Return the keys of the blocks whose KV is still found once they are evicted.

    A block that is nowhere else stays, and so does what it continues: the engine looks a chain up
    from its beginning, and would never ask the store for the end of one.

    Args:
        idle: a block before the one that it continues.
        held: keys of those that the store holds.
    """
    evictable = []
    needed = set()
    for block in idle:
        if block.key in held and block.key not in needed:
            evictable.append(block.key)
        else:
            needed.add(block.previous)
    return evictable
