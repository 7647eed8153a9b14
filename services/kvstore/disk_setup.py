"""Brings the disk tier up beside a store that serves already."""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

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
            "store.disk_bytes needs a file: set BATON_STORE_DISK_PATH or --store-disk-path, or "
            "disk_bytes to 0."
        )
    if 0 < settings.disk_bytes < SLAB_BYTES:
        raise StartupError(
            f"store.disk_bytes is at least {SLAB_BYTES}, or 0 for no disk: set "
            "BATON_STORE_DISK_BYTES or --store-disk-bytes to more."
        )


async def open_disk(
    store: Store,
    path: Path,
    settings: StoreSettings,
    on_failed: Callable[[], None],
    *,
    verify: bool,
) -> None:
    """Open the file, take in what it holds, and add the disk tier.

    Making a large file and reading its records takes seconds: meanwhile memory serves alone.

    Args:
        store: whose tier it will be.
        path: the file.
        settings: how many bytes it has for objects, and when it counts as failed.
        on_failed: called once if the disk cannot be used, now or later.
        verify: whether what is loaded is checked.
    """

    def failed(reason: str) -> None:
        effect = "disk tier disabled, using DRAM only"
        log.error("kv.disk.disabled", path=str(path), reason=reason, effect=effect)
        on_failed()

    opening = asyncio.get_running_loop().run_in_executor(
        None, _open, path, settings.disk_bytes // SLAB_BYTES * SLAB_BYTES
    )
    try:
        file, records = await asyncio.shield(opening)
    except OSError as error:
        store.disk_failed = str(error)
        failed(store.disk_failed)
        return
    except asyncio.CancelledError:
        await asyncio.wait([opening])  # the file must not be left locked
        if opening.exception() is None:
            opening.result()[0].close()
        raise
    disk = add_disk(store, file, records, failed, settings, verify=verify)
    log.info("kv.disk.ready", path=str(path), objects=len(disk.index), direct=file.is_direct)


def add_disk(
    store: Store,
    file: DiskFile,
    records: Iterable[Record],
    on_failed: Callable[[str], None] = lambda _: None,
    settings: StoreSettings = StoreSettings(),
    *,
    verify: bool = True,
) -> DiskTier:
    """Add the disk tier to a store, which closes it with `Store.close_disk`.

    Args:
        store: whose tier it will be.
        file: where objects go.
        records: what it holds already.
        on_failed: called once with the reason when the disk is switched off.
        settings: when it counts as failed.
        verify: whether what is loaded is checked.
    """

    def failed(reason: str) -> None:
        store.disk_failed = reason
        on_failed(reason)

    index = DiskIndex(file.data_bytes, store.quotas)
    for record in records:
        index.restore(record)
    context = DiskContext(store.table, store.arena, index, file, store.clock, verify)
    disk = DiskTier(
        context,
        store.waits,
        store.events,
        store.commit_one,
        on_failed=failed,
        on_change=store.schedule_flush,
        settings=settings,
    )
    store.disk = store.waits.disk = disk
    store.events.on_disk = index.__contains__
    for entry in index.entries():
        if store.waits.is_awaited(entry.object_id):
            disk.load(entry.object_id)
    store.schedule_flush()
    return disk


def _open(path: Path, data_bytes: int) -> tuple[DiskFile, list[Record]]:
    file = DiskFile(path, data_bytes)
    try:
        return file, list(file.records())
    except BaseException:
        file.close()
        raise
