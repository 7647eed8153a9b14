"""`baton models pull`."""

import os
from pathlib import Path
from time import monotonic

from rich.console import Console

from baton.cli.models.options import PullOptions
from baton.cli.shared.errors import EXIT_FAILED, EXIT_INTERRUPTED, CommandError
from baton.host.redaction import redact
from baton.models.errors import PullError
from baton.models.limits import MIB, PullLimits
from baton.models.pull.progress import PullProgress
from baton.models.pull.pull import ModelPull, PullResult
from baton.models.pull.store import ModelStore
from baton.models.secrets import SourceSecrets
from baton.models.sources.addresses import open_source
from baton.models.sources.select import FileSelection

_LINE_SECONDS = 10.0
"""Between two lines about the progress, where there is no terminal."""


def pull(options: PullOptions, console: Console, err: Console) -> None:
    """Download a model.

    Args:
        options: of the command.
        console: for the result.
        err: for the progress.

    Raises:
        CommandError: it cannot be downloaded, or the user interrupted it.
    """
    limits = PullLimits(
        parallel=options.parallel,
        attempts=options.attempts,
        read_seconds=options.read_seconds,
        lock_seconds=options.lock_seconds,
    )
    selection = FileSelection(options.include or (), options.exclude or ())
    reporter = _Reporter(err)
    try:
        store = ModelStore(_directory(options), _cache(options), options.keep)
        secrets = SourceSecrets(options.token_file, options.secrets)
        source = open_source(options.source, limits, os.environ, secrets, options.endpoint)
        try:
            result = ModelPull(
                source, store, selection, limits, reporter.progress, reporter.tick
            ).run()
        finally:
            reporter.stop()
            source.close()
    except PullError as error:
        raise CommandError(redact(str(error)), EXIT_FAILED) from error
    except KeyboardInterrupt:
        raise CommandError(
            "Cancelled by Ctrl-C: run the command again to continue.", EXIT_INTERRUPTED
        ) from None
    console.print(_described(result, options, reporter), highlight=False, markup=False)


class _Reporter:
    """Prints how far a download is: on one line of a terminal, else a line now and then."""

    def __init__(self, console: Console) -> None:
        self.progress = PullProgress()
        self.began = monotonic()
        self._console = console
        self._last = self.began
        self._status = console.status("", spinner="line") if console.is_terminal else None

    def tick(self) -> None:
        """Print, if it is time to."""
        if self._status is not None:
            self._status.update(self._text())
            self._status.start()
        elif monotonic() - self._last >= _LINE_SECONDS:
            self._last = monotonic()
            self._console.print(self._text(), highlight=False, markup=False)

    def stop(self) -> None:
        """Leave the terminal as it was."""
        if self._status is not None:
            self._status.stop()

    def _text(self) -> str:
        done, total = self.progress.done_bytes, self.progress.total_bytes
        rate = self.progress.received_bytes / max(0.001, monotonic() - self.began)
        share = f"{100 * done // total} %" if total else "0 %"
        return f"{share} of {total // MIB:,} MiB, {rate / MIB:,.1f} MiB/s"


def _directory(options: PullOptions) -> Path | None:
    if options.directory is None:
        return None
    directory = options.directory.absolute()
    if directory.name in ("", ".."):
        raise PullError(f"{options.directory} has no name of its own: choose a directory below it.")
    return directory


def _cache(options: PullOptions) -> Path | None:
    if options.cache is not None or options.directory is not None:
        return options.cache
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "baton" / "models"


def _described(result: PullResult, options: PullOptions, reporter: _Reporter) -> str:
    record, progress = result.record, reporter.progress
    where = options.directory if options.directory is not None else result.directory
    size = sum(file.size for file in record.files)
    told = (
        f"{where} has {record.source} at revision {record.revision}: {len(record.files)} files, "
        f"{size / MIB:,.1f} MiB"
    )
    if result.source_is_away:
        return f"{told}, complete already. The source cannot be reached, and may have another."
    if result.was_there:
        return f"{told}, complete already."
    seconds = monotonic() - reporter.began
    told += f"; {progress.received_bytes / MIB:,.1f} MiB downloaded in {seconds:.1f} s"
    if progress.present_bytes:
        told += f", {progress.present_bytes / MIB:,.1f} MiB were there"
    if result.removed:
        told += f"; {len(result.removed)} old revisions removed from the cache"
    return f"{told}."
