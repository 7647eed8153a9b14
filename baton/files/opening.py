"""A process's files, and the task that keeps rows and objects together."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from baton.errors import BatonError
from baton.files.objects import FileObjects
from baton.files.store import FileStore
from baton.postgres.database import Database
from baton.process.background import start_background
from baton.settings import FileSettings
from baton.telemetry.logs import get_logger

log = get_logger(__name__)


@asynccontextmanager
async def open_files(database: Database, settings: FileSettings) -> AsyncIterator[FileStore]:
    """Open a process's files until the block ends.

    Raises:
        StartupError: `files.url` cannot be used.
    """
    store = FileStore(database, FileObjects(settings.url), settings)
    task = start_background(_sweep(store, database), "files' sweep")
    try:
        yield store
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _sweep(store: FileStore, database: Database) -> None:
    while True:
        if database.available:
            try:
                if deleted := await store.sweep():
                    log.info("files.objects.deleted", count=deleted)
            except BatonError as error:
                log.warning("files.sweep.failed", error=error.message)
        await asyncio.sleep(store.settings.sweep_seconds * random.uniform(0.5, 1.5))
