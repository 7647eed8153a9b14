"""Backs up a cluster: all lasting records, as of one etcd revision."""

import secrets
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

from baton import __version__
from baton.backup.errors import BackupError
from baton.backup.layout import BackupHeader
from baton.backup.sealing import KeyDerivation
from baton.backup.writer import BackupWriter
from baton.cluster import keys
from baton.cluster.etcd.client import Compacted, Etcd
from baton.tenancy.directory.watch import EPOCH

ATTEMPTS = 5
"""Attempts at a revision that etcd does not compact meanwhile."""
_PAGE = 256


async def back_up(
    etcd: Etcd,
    cluster: str,
    path: Path,
    passphrase: bytes,
    clock: Callable[[], float] = time.time,
) -> tuple[BackupHeader, int]:
    """Write a backup of a cluster; return its header, and its size in bytes.

    Reads pages of 256 records at one revision, and starts again with a newer one if etcd
    compacts it meanwhile. Serving is not affected. Holds a page and a chunk in memory.

    Args:
        etcd: the connection.
        cluster: the cluster's name.
        path: name of the backup; a file of that name is replaced once the new one is complete.
        passphrase: to seal it with.
        clock: returns seconds since the Unix epoch.

    Raises:
        BackupError: the cluster has no records, or etcd compacts each revision before it is read.
        EtcdError: etcd is unavailable.
        OSError: the file cannot be written.
    """
    for _ in range(ATTEMPTS):
        try:
            header = await _header(etcd, cluster, int(clock()))
            return header, await _write(etcd, header, path, passphrase)
        except Compacted:
            continue
    raise BackupError(
        f"etcd compacted its revisions faster than they could be read, {ATTEMPTS} times: compact "
        "less often (--auto-compaction-retention of etcd)"
    )


async def _header(etcd: Etcd, cluster: str, now: int) -> BackupHeader:
    revision = await etcd.revision()
    root = keys.cluster(cluster)
    epoch = await etcd.get(keys.tenancy(cluster) + EPOCH, revision)
    counts = {}
    for prefix in keys.lasting(cluster):
        counts[prefix.removeprefix(root).rstrip("/")] = await etcd.count(prefix, revision)
    if epoch is not None:
        counts["tenancy"] -= 1
    if not sum(counts.values()):
        raise BackupError(
            f"Cluster {cluster!r} has no records in etcd, so there is nothing to back up: the name "
            "is another one, or etcd has lost its data"
        )
    return BackupHeader(
        release=__version__,
        id=secrets.token_hex(8),
        cluster=cluster,
        revision=revision,
        epoch=(epoch or b"").decode(),
        created_seconds=now,
        counts=counts,
        kdf=KeyDerivation.new(),
    )


async def _write(etcd: Etcd, header: BackupHeader, path: Path, passphrase: bytes) -> int:
    root = keys.cluster(header.cluster)
    epoch = keys.tenancy(header.cluster) + EPOCH
    with BackupWriter(path, passphrase, header) as writer:
        for prefix in keys.lasting(header.cluster):
            async with aclosing(etcd.pages(prefix, _PAGE, header.revision)) as pages:
                async for pairs, _ in pages:
                    for key, value in pairs:
                        if key != epoch:
                            writer.add(key.removeprefix(root), value)
        return writer.finish()
