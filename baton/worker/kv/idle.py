"""KV that no request used for a while leaves the engine's memory if the store has it too."""

import asyncio
from collections.abc import Iterable, Set

from baton.engine.base import CachedBlock, Engine
from baton.errors import BatonError
from baton.kv.client.client import KvStoreClient, StoreUnavailableError
from baton.telemetry.logs import get_logger
from baton.worker import metrics
from baton.worker.engine_loop import EngineLoop

LOOKUP_KEYS = 4096
"""Asked for at once: a millisecond of the store's time."""
PERIOD_PART = 4
"""Looked at so often within the time of idleness: what leaves is at most this part too late."""
MAX_PERIOD_SECONDS = 10.0

log = get_logger(__name__)


async def evict_idle_blocks(
    engine: EngineLoop, store: KvStoreClient, layout_id: bytes, seconds: float
) -> None:
    """Drop what has been idle for so long, until cancelled.

    A store that is away holds nothing for sure: everything stays meanwhile.
    """
    while True:
        await asyncio.sleep(min(MAX_PERIOD_SECONDS, seconds / PERIOD_PART))
        try:
            dropped = await evict_idle_once(engine, store, layout_id, seconds)
        except (StoreUnavailableError, BatonError) as error:
            log.info("kv.idle.store_away", error=str(error))
            continue
        except Exception:
            log.exception("kv.idle.failed")  # what is idle stays, and the worker serves on
            continue
        if dropped:
            metrics.BLOCKS_IDLE.inc(dropped)
            log.info("kv.idle.left", blocks=dropped)


async def evict_idle_once(
    engine: EngineLoop, store: KvStoreClient, layout_id: bytes, seconds: float
) -> int:
    """Drop what has been idle for so long and is in the store; answers how many blocks.

    The store may lose a block a moment later: it is computed again then, as any that is lost.

    Raises:
        StoreUnavailableError: the store cannot be reached; nothing was dropped.
        BatonError: the store refused; nothing was dropped.
    """

    def idle_now(asked: Engine) -> list[CachedBlock]:
        return asked.idle_blocks(seconds)

    idle = await engine.call(idle_now)
    held: set[bytes] = set()
    for first in range(0, len(idle), LOOKUP_KEYS):
        keys = [block.key for block in idle[first : first + LOOKUP_KEYS]]
        found = await store.lookup(keys, layout_id)
        held.update(key for key, here in zip(keys, found, strict=True) if here)
    leaving = evictable_keys(idle, held)
    if not leaving:
        return 0
    # What was used meanwhile is idle no more, and stays.
    return await engine.call(lambda asked: asked.evict_blocks(leaving, seconds))


def evictable_keys(idle: Iterable[CachedBlock], held: Set[bytes]) -> list[bytes]:
    """Keys of the blocks whose KV is found again although they leave.

    A block that is nowhere else stays, and so does what it continues: the engine looks for a chain
    from its beginning, and nobody would ask it for the end of one that begins in the store.

    Args:
        idle: a block before the one that it continues.
        held: keys of those that the store holds.
    """
    leaving = []
    needed = set()
    for block in idle:
        if block.key in held and block.key not in needed:
            leaving.append(block.key)
        else:
            needed.add(block.previous)
    return leaving
