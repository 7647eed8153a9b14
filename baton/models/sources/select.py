"""Which files of a source are downloaded: what serving needs, unless told otherwise."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from baton.engine.checkpoint.paths import check_paths
from baton.engine.checkpoint.record import JOURNAL, MAX_FILES, RECORD
from baton.models.errors import PullError
from baton.models.sources.source import ModelListing, RemoteFile

INCLUDE = (
    "*.safetensors",
    "*.json",
    "*.jinja",
    "*.txt",
    "*.model",
    "*.tiktoken",
    "LICENSE*",
    "NOTICE*",
    "README.md",
)
"""Weights in the one format that is loaded, configuration, tokenizer, and the terms of use."""
EXCLUDE = ("original/*", "consolidated*", ".*", "*/.*", "onnx/*")
"""Further copies of the weights, and files of other programs."""
_OWN = (RECORD, JOURNAL)


class FileSelection:
    """Patterns of the paths to download; `*` also stands for slashes.

    Args:
        include: instead of INCLUDE; then EXCLUDE does not hold.
        exclude: left out, in addition to EXCLUDE.
    """

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        self.is_default = not include and not exclude
        """Whether the files are those that serving needs."""
        self._include = tuple(include) or INCLUDE
        self._exclude = (*exclude, *(() if include else EXCLUDE), *_OWN)

    def wants(self, path: str) -> bool:
        """Return whether the file of a path is downloaded."""
        return _any(path, self._include) and not _any(path, self._exclude)


def check_listing(listing: ModelListing) -> None:
    """Check that the files of a listing can be stored in one directory.

    Raises:
        PullError: there are none or too many, or a path or a size cannot be used.
    """
    if not listing.files:
        raise PullError(f"{listing.source} has no file that is wanted: check it, or set --include.")
    if len(listing.files) > MAX_FILES:
        raise PullError(
            f"{listing.source} has {len(listing.files)} files, more than {MAX_FILES}: set "
            "--include."
        )
    try:
        check_paths([file.path for file in listing.files])
    except ValueError as error:
        raise PullError(f"{listing.source} has a file that cannot be stored: {error}.") from error
    wrong: RemoteFile | None = next((file for file in listing.files if file.size < 0), None)
    if wrong is not None:
        raise PullError(f"{listing.source} says that {wrong.path} has {wrong.size} bytes.")


def _any(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)
