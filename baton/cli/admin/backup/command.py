"""Implementation of `baton backup` and `baton restore`."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console

from baton.backup.errors import BackupError
from baton.backup.layout import BackupHeader
from baton.backup.merge import Outcome
from baton.backup.reader import Backup
from baton.backup.restore import Restore, Restored
from baton.backup.snapshot import back_up
from baton.backup.usage_since import UsageSince
from baton.cli.admin.backup.options import RestoreOptions, SealedOptions
from baton.cli.admin.db.commands import settings_of
from baton.cli.shared.cluster_address import ClusterAddress, ask
from baton.cli.shared.errors import EXIT_FAILED, EXIT_USAGE, CommandError
from baton.cli.shared.render import size
from baton.cluster.etcd.client import Etcd
from baton.settings import StartupError

T = TypeVar("T")

SUFFIX = ".baton"
"""Ends the names of backups in a directory."""
POSTGRES = "postgres"
"""Names the database of usage records, instead of a path."""
_MAX_NAMES = 20
_KINDS = {
    "tenants": "salts",
    "tenancy": "tenants, projects, accounts, keys and classes",
    "audit": "audit",
    "spending": "spending",
    "uses": "uses of keys",
}
"""What the records of each prefix are called."""


def backup(options: SealedOptions, path: Path, keep: int, console: Console, as_json: bool) -> None:
    """Write a backup and print what it has.

    Args:
        options: the cluster, and the passphrase.
        path: name of the backup, or a directory, in which it is named by its cluster and time.
        keep: backups of the cluster to keep in that directory; 0: all.
        console: to print to.
        as_json: whether to print JSON.

    Raises:
        CommandError: it cannot be made.
    """
    passphrase = options.passphrase()
    if not path.parent.is_dir():
        raise CommandError(f"{path.parent} is not a directory.")
    if keep and not path.is_dir():
        raise CommandError(f"--keep is for a directory of backups, and {path} is none.")
    address = options.resolve()
    directory = path if path.is_dir() else None
    if directory is not None:
        path = directory / f"{address.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}{SUFFIX}"
    header, written = _ask(address, lambda etcd: back_up(etcd, address.name, path, passphrase))
    if directory is not None and keep:
        remove_old(directory, address.name, keep)
    if as_json:
        console.print_json(json.dumps({"path": str(path), "bytes": written, **_fields(header)}))
        return
    _say(
        console,
        f"Wrote {path}, {size(written)}: {header.records} records of cluster {header.cluster} at "
        f"revision {header.revision} ({_counts(header)}).",
    )


def verify(options: SealedOptions, path: Path, console: Console, as_json: bool) -> None:
    """Read all of a backup and print what it has.

    Raises:
        CommandError: it cannot be used.
    """
    passphrase = options.passphrase()
    try:
        saved = Backup(path)
        saved.verify(passphrase)
    except BackupError as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error
    header = saved.header
    if as_json:
        console.print_json(json.dumps({"path": str(path), **_fields(header)}))
        return
    _say(
        console,
        f"{path} is complete: {header.records} records of cluster {header.cluster} at revision "
        f"{header.revision}, made {_time(header)} by release {header.release} ({_counts(header)}).",
    )


def restore(
    options: RestoreOptions,
    path: Path,
    origin: str,
    revive: bool,
    usage: str,
    console: Console,
    as_json: bool,
) -> None:
    """Restore a backup and print what was done.

    Args:
        options: the cluster to restore into, and the passphrase.
        path: the backup.
        origin: the backup's cluster, if it is another one; empty: it is the same.
        revive: whether to bring back what was deleted or ended since.
        usage: where usage records are: a path, or POSTGRES; empty: they are not used.
        console: to print to.
        as_json: whether to print JSON.

    Raises:
        CommandError: it cannot be used, or etcd does not respond.
    """
    passphrase = options.passphrase()
    try:
        saved = Backup(path)
    except BackupError as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error
    header = saved.header
    address = options.resolve_or("" if origin else header.cluster)
    expected = origin or address.name
    if header.cluster != expected:
        raise CommandError(
            f"{path} is a backup of cluster {header.cluster!r}, not of {expected!r}: to restore it "
            f"into cluster {address.name!r}, set --from {header.cluster}."
        )
    costs = _costs(usage, header, address) if usage else None
    done = _ask(
        address,
        lambda etcd: Restore(
            etcd, address.name, saved, passphrase, revive=revive, usage=costs
        ).run(),
    )
    if as_json:
        fields = {
            **{str(outcome): count for outcome, count in done.counts.items()},
            "not_brought_back": [{"name": n, "why": str(why)} for n, why in done.kept_out],
            "cluster": address.name,
        }
        console.print_json(json.dumps(fields))
        return
    _tell(done, header, address.name, console)


def _tell(done: Restored, header: BackupHeader, cluster: str, console: Console) -> None:
    counts = done.counts
    _say(
        console,
        f"Restored {counts[Outcome.RESTORED]} of {header.records} records of {_time(header)} into "
        f"cluster {cluster}; {counts[Outcome.SAME]} were there already, and "
        f"{counts[Outcome.NEWER]} are newer in etcd and stay.",
    )
    if not done.kept_out:
        return
    _say(console, "Not brought back, because they ended since; --revive brings them back:")
    for name, outcome in done.kept_out[:_MAX_NAMES]:
        _say(console, f"  {name} ({outcome})")
    if len(done.kept_out) > _MAX_NAMES:
        _say(console, f"  and {len(done.kept_out) - _MAX_NAMES} more; --json lists all")


def remove_old(directory: Path, cluster: str, keep: int) -> None:
    """Remove all but the latest backups of a cluster that are named by it and their time.

    Raises:
        CommandError: one cannot be removed.
    """
    named = re.compile(re.escape(cluster) + r"-\d{8}T\d{6}Z" + re.escape(SUFFIX))
    found = sorted(one for one in directory.iterdir() if named.fullmatch(one.name))
    for old in found[:-keep]:
        try:
            old.unlink()
        except OSError as error:
            raise CommandError(
                f"{old} cannot be removed: {error.strerror}.", EXIT_FAILED
            ) from error


def _costs(source: str, header: BackupHeader, address: ClusterAddress) -> UsageSince:
    """Return the costs of requests since the month of a backup.

    Raises:
        CommandError: the records cannot be read.
    """
    costs = UsageSince(header.created_seconds)
    if source != POSTGRES:
        try:
            costs.read_files(Path(source))
        except OSError as error:
            raise CommandError(f"--usage {source} cannot be read: {error.strerror}.") from error
    else:
        _read_postgres(costs, address)
    if costs.empty:
        raise CommandError(
            f"--usage {source} has no record of a request that cost anything since the month of "
            "the backup: name the right source, or leave it out."
        )
    return costs


def _read_postgres(costs: UsageSince, address: ClusterAddress) -> None:
    # asyncpg is imported only when it is used.
    from baton.postgres.connecting import StateError

    settings = settings_of("", None, address.local.cluster if address.local else "")
    try:
        asyncio.run(costs.read_postgres(settings))
    except StartupError as error:
        raise CommandError(str(error)) from error
    except StateError as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error


def _ask(address: ClusterAddress, what: Callable[[Etcd], Awaitable[T]]) -> T:
    try:
        return ask(address.endpoints, what)
    except BackupError as error:
        raise CommandError(f"{error}.", EXIT_FAILED) from error
    except OSError as error:
        raise CommandError(
            f"{error.filename} cannot be written: {error.strerror}.", EXIT_USAGE
        ) from error


def _fields(header: BackupHeader) -> dict[str, Any]:
    return {
        "cluster": header.cluster,
        "revision": header.revision,
        "created_seconds": header.created_seconds,
        "release": header.release,
        "layout": header.layout,
        "id": header.id,
        "records": header.records,
        "counts": header.counts,
    }


def _counts(header: BackupHeader) -> str:
    return "; ".join(
        f"{_KINDS.get(kind, kind)}: {count}" for kind, count in header.counts.items() if count
    )


def _time(header: BackupHeader) -> str:
    at = datetime.fromtimestamp(header.created_seconds, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
