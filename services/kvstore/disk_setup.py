"""Brings the disk tier up beside a store that serves; a disk that will not do is an alarm."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from baton.settings import StartupError
from baton.settings.groups import KvSettings
from baton.telemetry.logs import get_logger
from services.kvstore.disk.codecs import NONE, Codecs, is_installed
from services.kvstore.disk.file import SLAB_BYTES, DiskFile, Record
from services.kvstore.store import Store

log = get_logger(__name__)


def check(kv: KvSettings) -> None:
    """Refuse settings that contradict themselves.

    Raises:
        StartupError: a size without a path, one below the least, a codec that is not installed.
    """
    if kv.disk_bytes and kv.disk_path is None:
        raise StartupError(
            "kv.disk_bytes needs a file: set BATON_KV_DISK_PATH or --kv-disk-path, or disk_bytes "
            "to 0."
        )
    if 0 < kv.disk_bytes < SLAB_BYTES:
        raise StartupError(
            f"kv.disk_bytes is at least {SLAB_BYTES}, or 0 for no disk: set BATON_KV_DISK_BYTES or "
            "--kv-disk-bytes to more."
        )
    if kv.disk_bytes and not is_installed(kv.disk_codec):
        raise StartupError(
            f"kv.disk_codec is {kv.disk_codec} and its library is not installed: pip install "
            "baton[codecs], or set BATON_KV_DISK_CODEC or --kv-disk-codec to none."
        )


async def add_disk(
    store: Store,
    path: Path,
    data_bytes: int,
    alarm: Callable[[], None],
    *,
    codec: str = NONE,
    verify: bool,
) -> None:
    """Open the file, take in what lies there, and let objects go to it.

    Making a large file and reading its records takes seconds: meanwhile memory serves alone.

    Args:
        store: whose tier it will be.
        path: the file.
        data_bytes: for objects.
        alarm: called once if the disk can not be used, now or later.
        codec: the name of one that is installed.
        verify: whether what comes back is checked.
    """

    def failed(reason: str) -> None:
        log.error("the disk of KV is off: memory goes on alone", path=str(path), reason=reason)
        alarm()

    codecs = Codecs(codec)
    opening = asyncio.get_running_loop().run_in_executor(
        None, _open, path, data_bytes // SLAB_BYTES * SLAB_BYTES, codecs
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
    disk = store.add_disk(file, records, failed, codecs=codecs, verify=verify)
    log.info("disk of KV is ready", path=str(path), objects=len(disk.index), direct=file.is_direct)


def _open(path: Path, data_bytes: int, codecs: Codecs) -> tuple[DiskFile, list[Record]]:
    file = DiskFile(path, data_bytes)
    try:
        records = list(file.records())
        strange = [record for record in records if not codecs.can_read(record.codec)]
        for record in strange:
            file.clear(record.offset)
        if strange:
            log.warning("KV on disk that no codec here can read is dropped", objects=len(strange))
        return file, [record for record in records if codecs.can_read(record.codec)]
    except BaseException:
        file.close()
        raise
