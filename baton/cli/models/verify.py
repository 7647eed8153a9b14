"""`baton models verify`."""

from pathlib import Path

from rich.console import Console

from baton.cli.shared.errors import EXIT_FAILED, CommandError
from baton.engine.checkpoint.files import INDEX, SINGLE
from baton.engine.checkpoint.integrity import check_contents, check_directory, mark_unchanged
from baton.engine.checkpoint.record import RECORD, read_record
from baton.engine.support.documents import CheckpointError


def verify(directory: Path, console: Console) -> None:
    """Check a model's directory, and print what was checked.

    Raises:
        CommandError: it is incomplete or damaged, or no directory.
    """
    if not directory.is_dir():
        raise CommandError(f"{directory} is not a directory.")
    has_weights = any((directory / name).exists() for name in (INDEX, SINGLE))
    try:
        check_directory(directory)
        check_contents(directory, has_weights, "all")
        record = read_record(directory)
    except CheckpointError as error:
        raise CommandError(str(error), EXIT_FAILED) from error
    if record is None:
        told = (
            f"{directory} has no {RECORD}: the weights are as long as their headers say, and no "
            "digest can be checked."
        )
    else:
        told = (
            f"{directory} has all {len(record.files)} files of {record.source} at revision "
            f"{record.revision}, with their digests."
        )
        if not mark_unchanged(directory, record):
            told += (
                " Their times differ from the record's and cannot be set, so workers compare "
                "digests at each start unless engine.model_digests is off."
            )
    console.print(told, highlight=False, markup=False)
