"""Deletes batches that ended long ago. Their lines were deleted when they ended, and their files
expire by themselves."""

import asyncio
import random

from baton.batches.store import BatchStore
from baton.errors import BatonError
from baton.telemetry.logs import get_logger

_SECONDS = 3600.0
"""Between two looks of a frontend: each reads all batches."""
_RETRY_SECONDS = 10.0

log = get_logger(__name__)


async def keep_forgetting(
    store: BatchStore, days: int, seconds: float = _SECONDS, retry: float = _RETRY_SECONDS
) -> None:
    """Delete batches so many days after their end, until cancelled; 0: keep them."""
    while days:
        wait = retry
        if store.available:
            try:
                if deleted := await store.forget(days):
                    log.info("batches.rows.deleted", count=deleted)
                wait = seconds * random.uniform(0.5, 1.5)
            except BatonError as error:
                log.warning("batches.retention.failed", error=error.message)
        await asyncio.sleep(wait)
