"""Keeps the disk tier open, in the background of a running store."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from baton.rpc.timing.backoff import Backoff
from baton.settings import StartupError, StoreSettings
from baton.telemetry.logs import get_logger
from services.kvstore.disk.context import DiskContext
from services.kvstore.disk.file import SLAB_BYTES, DiskFile, Record
from services.kvstore.disk.index import DiskIndex
from services.kvstore.disk.tier import DiskTier
from services.kvstore.store import Store

log = get_logger(__name__)


def check(settings: StoreSettings) -> None:
    """Check the settings of the disk tier.

    Raises:
        StartupError: a size without a path, or one below the least.
    """
    if settings.disk_bytes and settings.disk_path is None:
        raise StartupError(
            "store.disk_bytes requires a file: set BATON_STORE_DISK_PATH or --store-disk-path, or "
            "set "
            "store.disk_bytes to 0."
        )
    if 0 < settings.disk_bytes < SLAB_BYTES:
        raise StartupError(
            f"store.disk_bytes must be at least {SLAB_BYTES}, or 0 for no disk tier: raise "
            "BATON_STORE_DISK_BYTES or --store-disk-bytes."
        )


async def keep_disk(
    store: Store,
    path: Path,
    settings: StoreSettings,
    on_change: Callable[[bool], None],
    *,
    verify: bool,
) -> None:
    """Open the file, read its records, add the disk tier; repeat after it failed. Endless.

    Creating a large file and reading its records takes seconds: meanwhile only memory is used, as
    after a failure until the file can be opened and its disk has released the threads that used it.
    Objects on the disk at its failure are available again, except those dropped meanwhile.

    Args:
        store: receives the tier.
        path: the file.
        settings: bytes for objects, when the disk counts as failed, and when to retry.
        on_change: called with whether the disk is used, when that changes.
        verify: whether loaded objects are checked.
    """
    backoff = Backoff(settings.disk_retry_seconds, settings.disk_max_retry_seconds)
    before: DiskTier | None = None
    while True:
        failed = asyncio.Event()
        try:
            file, records = await _open_beside(path, settings)
        except OSError as error:
            store.disk_failed = str(error)
        else:
            disk = add_disk(store, file, records, failed.set, settings, before, verify=verify)
            opened = store.clock()
            on_change(True)
            log.info(
                "kv.disk.ready", path=str(path), objects=len(disk.index), direct=file.is_direct
            )
            await failed.wait()
            before = disk
            if store.clock() - opened > settings.disk_max_retry_seconds:
                backoff.reset()
        on_change(False)
        pause = backoff.next()
        log.error(
            "kv.disk.disabled",
            path=str(path),
            reason=store.disk_failed,
            effect="disk tier disabled, using DRAM only",
            retry_seconds=round(pause, 1),
        )
        if before is not None:
            await before.close(wait=True)
        await asyncio.sleep(pause)


def add_disk(
    store: Store,
    file: DiskFile,
    records: Iterable[Record],
    on_failed: Callable[[], None] = lambda: None,
    settings: StoreSettings = StoreSettings(),
    before: DiskTier | None = None,
    *,
    verify: bool = True,
) -> DiskTier:
    """Add the disk tier to a store, which closes it with `Store.close_disk`.

    Args:
        store: receives the tier.
        file: where objects are stored.
        records: its existing contents.
        on_failed: called once when the disk is switched off; the reason is in `Store.disk_failed`.
        settings: when the disk counts as failed.
        before: the failed tier that used the file; its counters continue.
        verify: whether loaded objects are checked.
    """

    def failed(reason: str) -> None:
        store.disk_failed = reason
        on_failed()

    index = DiskIndex(file.data_bytes, store.quotas)
    for record in records:
        wanted = before is None or before.kept.get(record.object_id) == record.digest
        if not (wanted and index.restore(record)):
            index.cleared.append(record.offset)
    context = DiskContext(store.table, store.arena, index, file, store.clock, verify)
    if before is not None:
        index.evictions = before.index.evictions
        context = replace(context, counts=before.counts)
    disk = DiskTier(
        context,
        store.waits,
        (store.events, store.cuts),
        store.commit_one,
        on_failed=failed,
        on_change=store.schedule_flush,
        settings=settings,
    )
    store.disk = store.waits.disk = disk
    store.disk_failed = ""
    store.check_quotas()
    store.events.on_disk = index.__contains__
    for entry in index.entries():
        if store.waits.is_awaited(entry.object_id):
            disk.load(entry.object_id)
    store.schedule_flush()
    return disk


async def _open_beside(path: Path, settings: StoreSettings) -> tuple[DiskFile, list[Record]]:
    opening = asyncio.get_running_loop().run_in_executor(
        None, _open, path, settings.disk_bytes // SLAB_BYTES * SLAB_BYTES
    )
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])  # the file must not stay locked
        if opening.exception() is None:
            opening.result()[0].close()
        raise


def _open(path: Path, data_bytes: int) -> tuple[DiskFile, list[Record]]:
    file = DiskFile(path, data_bytes)
    try:
        return file, list(file.records())
    except BaseException:
        file.close()
        raise
