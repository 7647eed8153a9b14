"""The tree of a checkpoint: no file of it leads elsewhere.

Frontends get the tokenizer's files as they are, so a symbolic link in a downloaded checkpoint could
hand out any file that the worker may read.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from baton.engine.support.documents import CheckpointError

MAX_ENTRIES = 100_000
"""Files and folders; a checkpoint has at most thousands."""


def check_tree(directory: Path) -> None:
    """Check that everything below a directory is a file or a folder within it.

    Symbolic links may name files within the directory. In a snapshot of Hugging Face's cache they
    may name the blobs next to it. What may not be read is not looked at.

    Raises:
        CheckpointError: a link leads out of it or to nothing, something is neither file nor folder,
            or there are more than 100,000 entries.
    """
    root = _root(directory)
    for count, entry in enumerate(_entries(directory), 1):
        if count > MAX_ENTRIES:
            raise CheckpointError(
                f"{directory} has more than {MAX_ENTRIES} files: set the model to the directory of "
                "one checkpoint."
            )
        if entry.is_symlink():
            _check_link(Path(entry.path), root)
        elif not entry.is_dir() and not entry.is_file():
            raise CheckpointError(f"{entry.path} is neither a file nor a folder: remove it.")


def _check_link(link: Path, root: Path) -> None:
    try:
        target = link.resolve(strict=True)
        mode = target.stat().st_mode
    except (OSError, RuntimeError) as error:  # in Python 3.11 and 3.12 a loop is a RuntimeError
        raise CheckpointError(
            f"{link} is a symbolic link to nothing: download the checkpoint again."
        ) from error
    if not target.is_relative_to(root):
        raise CheckpointError(
            f"{link} is a symbolic link to {target}, outside of the checkpoint: replace it with "
            "the file itself."
        )
    if not S_ISREG(mode) and not S_ISDIR(mode):
        raise CheckpointError(f"{link} is a symbolic link to {target}, which is no file.")


def _root(directory: Path) -> Path:
    """Return the directory within which links may lead."""
    resolved = directory.resolve()
    above = resolved.parents
    # models--ORG--NAME/snapshots/COMMIT/FILE is a link to models--ORG--NAME/blobs/DIGEST.
    if len(above) > 1 and above[0].name == "snapshots" and above[1].name.startswith("models--"):
        return above[1]
    return resolved


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    """Yield everything below a directory, without following links."""
    waiting = [str(directory)]
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    yield entry
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except PermissionError:
            continue  # such as lost+found of a volume: nothing reads it
        except FileNotFoundError:
            continue
        except OSError as error:
            raise CheckpointError(f"{error.filename} cannot be read: {error.strerror}.") from error
