"""The directory of one run of a local cluster, with logs, etcd's data and addresses.

A run holds a lock on its directory for as long as it lives. Only the logs of the last few ended
runs are kept. A directory with a free lock and other files was left by a killed run; the next run
cleans it up.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from baton.cli.cluster.local.files.local_clusters import (
    LOCK,
    RUN_PREFIX,
    LocalCluster,
    base_directory,
)
from baton.cli.shared.errors import CommandError
from baton.host.file_locks import is_locked

_LOGS = "logs"
_SUPERVISOR_LOG = "supervisor.log"
KEPT_RUNS = 5
"""Number of ended runs whose logs are kept."""
KEPT_BYTES = 64 << 20
"""Most bytes of logs of ended runs; those of the last run are kept regardless of size."""


class RunDirectory:
    """The directory of one run. Leaving removes everything except the logs."""

    def __init__(self, base: Path | None = None) -> None:
        """Create and lock a directory under `base` (default: `base_directory()`)."""
        self._base = base or base_directory()
        self._lock = -1
        self.path = Path()

    def __enter__(self) -> Self:
        self._base.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._base.stat().st_uid != os.getuid() or self._base.is_symlink():
            raise CommandError(f"{self._base} belongs to another user: set XDG_RUNTIME_DIR.")
        clear_ended(self._base)
        made = Path(tempfile.mkdtemp(prefix="new-", dir=self._base))
        self._lock = os.open(made / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Renamed to the pattern of `clear_ended` only now, when it is locked.
        self.path = made.rename(made.with_name(f"{RUN_PREFIX}{os.getpid()}-{made.name[4:]}"))
        self.logs.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        _keep_logs(self.path)
        os.close(self._lock)
        clear_ended(self._base)

    @property
    def logs(self) -> Path:
        """Directory with one log file per process."""
        return self.path / _LOGS

    @property
    def supervisor_log(self) -> Path:
        """Log of the supervisor itself."""
        return self.logs / _SUPERVISOR_LOG

    @property
    def etcd_data(self) -> Path:
        """etcd's data."""
        return self.path / "etcd"

    @property
    def database(self) -> Path:
        """Postgres' data and its socket."""
        return self.path / "postgres"

    @property
    def usage_spool(self) -> Path:
        """Usage records of frontends without another configured location."""
        return self.path / "usage"

    @property
    def conversations_spool(self) -> Path:
        """What frontends without another configured location keep while Postgres is away."""
        return self.path / "conversations"

    @property
    def files(self) -> Path:
        """Bytes of files, of frontends without another configured location."""
        return self.path / "files"

    @property
    def history(self) -> Path:
        """Ended requests that routers without another configured location keep."""
        return self.path / "history"

    def write_state_url(self, url: str) -> Path:
        """Return a file that only this user may read, with the URL of the database."""
        path = self.path / "state-url"
        path.touch(mode=0o600)
        path.write_text(url)
        return path

    @property
    def control(self) -> Path:
        """Socket that takes changes of the cluster's models."""
        return self.path / "control"

    @property
    def metric_targets(self) -> Path:
        """File with the metrics addresses of instances, in the format of Prometheus'
        `file_sd_configs`."""
        return self.path / "metric-targets.json"

    def publish(self, cluster: LocalCluster) -> None:
        """Make the cluster known to other commands."""
        cluster.write(self.path)


def clear_ended(base: Path) -> None:
    """Remove files of ended runs, except the logs of the last ones."""
    ended = [directory for directory in _runs(base) if not is_locked(directory / LOCK)]
    for directory in ended:
        _keep_logs(directory)
    total = 0
    newest_first = sorted(filter(Path.is_dir, ended), key=_last_written, reverse=True)
    for number, directory in enumerate(newest_first):
        total += sum(size for size, _ in _log_files(directory))
        if number and (number >= KEPT_RUNS or total > KEPT_BYTES):
            shutil.rmtree(directory, ignore_errors=True)


def _keep_logs(directory: Path) -> None:
    """Remove all of a run's directory except its logs, and all of it if no process logged
    anything."""
    if not any(size for size, _ in _log_files(directory, but=_SUPERVISOR_LOG)):
        for entry in list(directory.iterdir()) if directory.is_dir() else ():
            if entry.is_symlink():
                _remove(entry)
        shutil.rmtree(directory, ignore_errors=True)
        return
    for entry in directory.iterdir():
        if entry.is_dir() and entry.name != _LOGS:
            _remove(entry)
        elif entry.name != _LOGS:
            entry.unlink(missing_ok=True)


def _remove(directory: Path) -> None:
    """Remove a directory of a run; with root, Postgres' data is behind a link."""
    if directory.is_symlink():
        from baton.postgres.local.programs import remove_data

        remove_data(directory)
    else:
        shutil.rmtree(directory, ignore_errors=True)


def _last_written(directory: Path) -> float:
    return max((written for _, written in _log_files(directory)), default=0.0)


def _log_files(directory: Path, but: str = "") -> list[tuple[int, float]]:
    """Return the size and modification time of each log file, except one by name."""
    logs = directory / _LOGS
    try:
        found = [path.stat() for path in logs.iterdir() if path.name != but]
    except FileNotFoundError:  # another run just removed it
        return []
    return [(one.st_size, one.st_mtime) for one in found]


def _runs(base: Path) -> Iterator[Path]:
    yield from base.glob(f"{RUN_PREFIX}*") if base.is_dir() else ()
